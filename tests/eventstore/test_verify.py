"""A change of what was appended is found and named, however it was made."""

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eventstore import verify as verifier
from eventstore.errors import StoreCorrupt, StoreError, StoreMissing
from eventstore.events import GENESIS, Event, chain_hash
from eventstore.facts import EpisodeFinished, Faulted
from eventstore.log import Log
from eventstore.schema import APPLICATION_ID, SCHEMA_VERSION
from eventstore.store import ANY, Store
from eventstore.verify import Report, examine, schema_digest, verify

FENCE = ("events_are_added_at_the_end", "events_are_never_changed", "events_are_never_removed")


def fault(n: int) -> Faulted:
    return Faulted(stage="test", detail=f"detail-{n:03}", attempt=n)


@pytest.fixture
def home(tmp_path):
    with Store.open(tmp_path / "home") as store:
        for n in range(1, 41):
            store.append("even" if n % 2 == 0 else "odd", [fault(n)], expected=ANY, event_ids=[f"id-{n:03}"])
    return tmp_path / "home"


def unfenced(home: Path, *statements: str) -> None:
    """Run the statements with the fence down, and put the same fence up again."""
    with closing(sqlite3.connect(home / "log.sqlite", isolation_level=None)) as owner:
        fence = [owner.execute("SELECT sql FROM sqlite_master WHERE name = ?", [name]).fetchone()[0] for name in FENCE]
        for statement in (*(f"DROP TRIGGER {name}" for name in FENCE), *statements, *fence):
            owner.execute(statement)


def rechained(home: Path, *statements: str) -> None:
    """As `unfenced`, with the whole chain computed anew: what only an owner who knows the format can do."""
    unfenced(home, *statements)
    prev, updates = GENESIS, []
    with closing(sqlite3.connect(home / "log.sqlite")) as db:
        for row in db.execute("SELECT position, stream, version, event_id, kind, at_ns, payload FROM events"):
            event = Event(*row[:6], row[6].encode(), b"", prev)
            updates.append(
                f"UPDATE events SET prev = x'{prev.hex()}', hash = x'{chain_hash(event).hex()}' WHERE position = {row[0]}"
            )
            prev = chain_hash(event)
    unfenced(home, *updates)


def dump(path: Path) -> object:
    """All that a reader can see, or None if it cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as db:
            db.text_factory = bytes
            schema = db.execute("SELECT * FROM sqlite_master").fetchall()
            by = [
                db.execute(f"SELECT {key}, position FROM events INDEXED BY {index} ORDER BY {key}").fetchall()
                for key, index in (("event_id", "sqlite_autoindex_events_1"), ("stream", "sqlite_autoindex_events_2"))
            ]
            return schema, db.execute("SELECT * FROM events ORDER BY position").fetchall(), by
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return None


def read(home: Path) -> list[Event] | None:
    """All events by our own reader, or None if it refuses."""
    try:
        with Store.open(home, read_only=True) as store:
            return list(store.read())
    except StoreError:
        return None


def test_a_sound_log_is_sound_and_told_with_its_head(home):
    with Store.open(home, read_only=True) as store:
        head = store.head().hash.hex()
        report = Report(True, 40, head, None, (), 0, (), ())
        assert verify(home) == report  # beside an open store: it looks from a process of its own
    assert examine(home) == report


def test_an_empty_log_is_sound(tmp_path):
    Store.open(tmp_path).close()
    assert verify(tmp_path) == Report(True, 0, "0" * 64, None, (), 0, (), ())


def test_no_log_is_a_clear_error(tmp_path):
    with pytest.raises(StoreMissing, match=r"^no log at .*log\.sqlite$"):
        verify(tmp_path)


def test_the_verifiers_own_idea_of_the_schema_is_the_writers(home):
    with closing(sqlite3.connect(home / "log.sqlite")) as db:
        assert verifier.SCHEMA_DIGESTS[SCHEMA_VERSION] == schema_digest(db)
    assert verifier.APPLICATION_ID == APPLICATION_ID


def test_one_flipped_bit_of_a_payload_is_found_and_named(home):
    path = home / "log.sqlite"
    # everywhere, since a page may hold a dead copy too; "6" is "7" with its lowest bit flipped
    path.write_bytes(path.read_bytes().replace(b"detail-017", b"detail-016"))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)  # SQLite does not see it
    report = examine(home)
    assert (report.ok, report.first_bad, report.problems) == (
        False,
        17,
        ("position 17: its content does not match its hash",),
    )
    with Store.open(home, read_only=True) as store:
        assert len(list(store.read(limit=16))) == 16
        with pytest.raises(StoreCorrupt) as caught:
            list(store.read("odd"))
    assert (str(caught.value), caught.value.position) == (
        "corrupt log at position 17: its content does not match its hash",
        17,
    )


def test_every_random_bit_that_changes_what_a_reader_sees_is_found(home):
    path = home / "log.sqlite"
    sound, seen, events, chance = path.read_bytes(), dump(path), read(home), random.Random(1)
    changed = 0
    for _ in range(300):
        body = bytearray(sound)
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        path.write_bytes(body)
        if dump(path) != seen:
            changed += 1
            assert not examine(home).ok
        found = read(home)
        assert (
            found is None or found == events[: len(found)]
        )  # a typed error, or true; that the end is lost, `verify` sees
    assert changed > 50


@pytest.mark.parametrize(
    ("statement", "position", "problem"),
    [
        ("UPDATE events SET at_ns = at_ns + 1 WHERE position = 5", 5, "its content does not match its hash"),
        ("UPDATE events SET event_id = 'other' WHERE position = 5", 5, "its content does not match its hash"),
        ("UPDATE events SET hash = zeroblob(32) WHERE position = 5", 5, "its content does not match its hash"),
        ("UPDATE events SET prev = zeroblob(32) WHERE position = 5", 5, "not chained to the event before it"),
        ("DELETE FROM events WHERE position = 5", 6, "follows position 4: events are missing"),
        ("DELETE FROM events WHERE position < 3", 3, "follows position 0: events are missing"),
    ],
)
def test_an_edit_behind_the_fence_is_found_though_the_fence_stands_again(home, statement, position, problem):
    unfenced(home, statement)
    report = examine(home)
    assert (report.ok, report.first_bad) == (False, position)
    assert f"position {position}: {problem}" in report.problems


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE events SET version = 9000 WHERE position = 40", "version 9000 follows version 19 of its stream"),
        ("UPDATE events SET kind = 'episode.resumed' WHERE position = 40", "its payload is a 'faulted', its kind says"),
        ("UPDATE events SET payload = '{}' WHERE position = 40", "its payload does not parse as 'faulted': "),
    ],
)
def test_nonsense_is_found_even_under_a_chain_computed_anew(home, statement, problem):
    rechained(home, statement)
    report = examine(home)
    assert (report.ok, report.first_bad, len(report.problems)) == (False, 40, 1)
    assert report.problems[0].startswith(f"position 40: {problem}")


def test_a_history_computed_anew_is_seen_only_by_its_head(home):
    kept = examine(home).head
    rechained(home, "UPDATE events SET at_ns = at_ns + 1 WHERE position = 3")
    report = examine(home)
    assert (report.ok, report.events, report.head == kept) == (True, 40, False)


def test_a_dropped_fence_is_found_even_when_no_row_was_touched(home):
    with closing(sqlite3.connect(home / "log.sqlite", isolation_level=None)) as owner:
        owner.execute("DROP TRIGGER events_are_never_changed")
    report = examine(home)
    assert (report.ok, report.first_bad, len(report.problems)) == (False, None, 1)
    assert report.problems[0].startswith("the schema was changed: table, index or trigger")


def test_a_fence_weakened_through_writable_schema_is_found(home):
    with closing(sqlite3.connect(home / "log.sqlite", isolation_level=None)) as owner:
        owner.execute("PRAGMA writable_schema=ON")
        owner.execute("UPDATE sqlite_master SET sql = replace(sql, 'no update', 'NO update')")
    assert examine(home).problems[0].startswith("the schema was changed")


def test_the_first_of_several_bad_events_is_named_and_the_others_are_told(home):
    unfenced(home, "UPDATE events SET at_ns = 0 WHERE position IN (9, 30)")
    report = examine(home)
    assert (report.first_bad, len(report.problems)) == (9, 2)


def test_a_reader_sees_that_an_event_is_missing(home):
    unfenced(home, "DELETE FROM events WHERE position = 5")
    with Store.open(home, read_only=True) as store:
        with pytest.raises(StoreCorrupt, match=r"^corrupt log at position 6: there is no position 5$"):
            list(store.read())
        with pytest.raises(StoreCorrupt, match=r"^corrupt log at position 7: there is no version 3$"):
            list(store.read("odd"))
        assert len(list(store.read("even"))) == 20


def test_a_removed_end_is_seen_only_by_its_head(home):
    kept = examine(home).head
    unfenced(home, "DELETE FROM events WHERE position > 38")
    report = examine(home)
    assert (report.ok, report.events, report.head == kept) == (True, 38, False)


def test_a_file_cut_in_half_and_a_file_of_noise_are_unreadable(home):
    path = home / "log.sqlite"
    os.truncate(path, path.stat().st_size // 2)
    assert not verify(home).ok
    path.write_bytes(b"noise" * 5000)
    assert verify(home).problems == ("unreadable: file is not a database",)


def test_missing_damaged_and_extra_blobs_are_told_apart(tmp_path):
    with Log.open(tmp_path) as log:
        digests = [log.blobs.put(body) for body in (b"one", b"two", b"three", b"extra")]
        for digest in digests[:3]:
            log.append("ep", [EpisodeFinished(outcome="winner", winner_source=digest)], expected=ANY)
        paths = [log.blobs.path(digest) for digest in digests]
    assert (examine(tmp_path).ok, examine(tmp_path).blobs_extra) == (True, (digests[3],))
    paths[0].unlink()
    paths[1].chmod(0o644)
    paths[1].write_bytes(b"twO")
    report = verify(tmp_path)
    assert (report.ok, report.first_bad, report.blobs_checked) == (False, None, 3)
    assert (report.blobs_missing, report.blobs_extra) == ((digests[0],), (digests[3],))
    assert report.problems == (
        f"blob {digests[0]}, named at position 1, is missing",
        f"blob {digests[1]}, named at position 2, does not hash to its name",
    )


def test_a_log_without_end_of_problems_tells_the_first_fifty(home):
    with Store.open(home) as store:
        store.append("more", [fault(n) for n in range(30)], expected=ANY)
    unfenced(home, "UPDATE events SET at_ns = 0")
    report = examine(home)
    assert (len(report.problems), report.problems[-1]) == (51, "and 20 more problems")
