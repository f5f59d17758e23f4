"""Rows are added at the end and never touched, whichever program tries."""

import sqlite3
from contextlib import closing

import apsw
import pytest

from eventstore.errors import FenceRefused, StoreReadOnly
from eventstore.facts import Faulted
from eventstore.store import ANY, Store
from eventstore.verify import examine

ROW = (
    "INSERT {how} INTO events"
    " VALUES ({position}, '{stream}', {version}, '{event_id}', 'k', 0, '{{}}', zeroblob(32), zeroblob(32))"
)
TOUCHES = {
    "update": "UPDATE events SET payload = '{}' WHERE position = 2",
    "update of all": "UPDATE OR REPLACE events SET position = 1",
    "delete": "DELETE FROM events WHERE position = 3",
    "delete of all": "DELETE FROM events",
    "replace at a position": ROW.format(how="OR REPLACE", position=2, stream="x", version=1, event_id="new"),
    "replace of an event id": ROW.format(how="OR REPLACE", position=4, stream="x", version=1, event_id="id-2"),
    "replace of a version": ROW.format(how="OR REPLACE", position=4, stream="ep", version=2, event_id="new"),
    "ignored collision": ROW.format(how="", position=4, stream="x", version=1, event_id="id-2"),
    "upsert": ROW.format(how="", position=4, stream="x", version=1, event_id="id-2")
    + " ON CONFLICT (event_id) DO UPDATE SET payload = 'changed'",
    "hole in the positions": ROW.format(how="", position=5, stream="x", version=1, event_id="new"),
    "position before the first": ROW.format(how="", position=0, stream="x", version=1, event_id="new"),
    "position left to SQLite": ROW.format(how="", position="NULL", stream="x", version=1, event_id="new"),
    "hole in the versions": ROW.format(how="", position=4, stream="ep", version=5, event_id="new"),
    "first version not 1": ROW.format(how="", position=4, stream="x", version=2, event_id="new"),
}


@pytest.fixture
def home(tmp_path):
    with Store.open(tmp_path / "home") as store:
        facts = [Faulted(stage="s", detail="", attempt=n) for n in (1, 2, 3)]
        store.append("ep", facts, expected=ANY, event_ids=["id-1", "id-2", "id-3"])
    return tmp_path / "home"


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES.keys())
@pytest.mark.parametrize("recursive_triggers", ["OFF", "ON"])
@pytest.mark.parametrize("library", [sqlite3.connect, apsw.Connection])
def test_no_program_changes_what_stands_in_the_log(home, touch, recursive_triggers, library):
    before = examine(home)
    with closing(library(str(home / "log.sqlite"))) as foreign:
        foreign.execute(f"PRAGMA recursive_triggers={recursive_triggers}")
        with pytest.raises((sqlite3.IntegrityError, apsw.ConstraintError), match="append-only"):
            foreign.execute(touch)
    assert examine(home) == before
    assert before.ok


def test_the_row_that_collides_with_nothing_would_be_taken(home):
    # else the refusals above could come from a mistake in the statement
    with closing(sqlite3.connect(home / "log.sqlite")) as foreign, foreign:
        foreign.execute(ROW.format(how="OR REPLACE", position=4, stream="x", version=1, event_id="new"))
    report = examine(home)
    assert (report.ok, report.events, report.first_bad) == (False, 4, 4)


def test_a_fence_in_our_own_way_is_a_typed_error(home):
    with closing(sqlite3.connect(home / "log.sqlite")) as foreign, foreign:
        foreign.execute("CREATE TRIGGER no BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'closed today'); END")
    with Store.open(home) as store, pytest.raises(FenceRefused, match="closed today"):
        store.append("ep", [Faulted(stage="s", detail="", attempt=4)], expected=ANY)


def test_a_read_only_opener_cannot_write(home):
    with Store.open(home, read_only=True) as store:
        with pytest.raises(StoreReadOnly, match="opened for reading only"):
            store.append("ep", [Faulted(stage="s", detail="", attempt=4)], expected=ANY)
        with pytest.raises(apsw.ReadOnlyError):
            store._connection.execute("DROP TRIGGER events_are_never_changed")
        assert len(list(store.read())) == 3
