"""A second opinion on a log: everything checked again by code that shares nothing with the writer.

It has its own SQL, its own hash, another SQLite library (the standard library's, read-only) and its own idea of the
schema; only the models of the facts are shared, since "the payload parses" means those. `verify` works in a process of
its own: a second SQLite library in the process of a writer would drop that writer's locks (see `eventstore.store`).

What it cannot see by itself: a log whose end was cut off, or whose whole history was computed anew. For that a head
kept elsewhere is needed; `Report.head` is what to keep.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eventstore.errors import StoreError, StoreFailed, StoreLocked, StoreMissing, StoreReadOnly
from eventstore.facts import FACT
from eventstore.references import blobs_named

SCHEMA_DIGESTS = {1: "sha256:ecee02ce68ecd0a9eb76c09b5a710e430b8483b7f6c0334fdd68cf442d3024ce"}
"""Digest of the schema (table, indexes, triggers) by `user_version`."""
APPLICATION_ID = int.from_bytes(b"ASSY")
MOST_PROBLEMS = 50
"""Problems told one by one; the rest is counted."""


@dataclass(frozen=True)
class Report:
    """What was found. `ok`: there is no problem. Extra blobs are none: their event may not be written yet."""

    ok: bool
    events: int
    head: str
    """Hash of the last event, hex; 64 zeros for an empty log."""
    first_bad: int | None
    """Position of the first bad event."""
    problems: tuple[str, ...]
    blobs_checked: int
    blobs_missing: tuple[str, ...]
    blobs_extra: tuple[str, ...]


def verify(home: Path) -> Report:
    """Check the whole log and every blob it names, in a process of its own.

    Raises StoreMissing, StoreReadOnly, StoreLocked or StoreFailed when it could not look; what it saw is in the report.
    """
    home = home.absolute()
    _path(home)
    command = [sys.executable, "-m", "eventstore.verify", str(home)]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise StoreFailed(f"the verifier ended with exit code {done.returncode}: {last}") from None
    if "error" in said:
        raise _ERRORS[said["error"]](said["message"])
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    return Report(**values)


def examine(home: Path) -> Report:
    """`verify` in this process, which must hold no open `Store` on that home."""
    path = _path(home)
    walk = _Walk()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")  # one snapshot for all questions
            _check_schema(db, walk)
            _check_events(db, walk)
            _check_structure(db, walk)
    except sqlite3.DatabaseError as error:
        walk.problem(_unreadable(error, path))
    except UnicodeDecodeError:  # SQLite quotes damaged text in its message, and sqlite3 cannot decode it
        walk.problem("unreadable: damaged text")
    missing, extra = _check_blobs(home / "blobs" / "sha256", walk)
    return Report(
        ok=walk.count == 0,
        events=walk.events,
        head=walk.prev.hex(),
        first_bad=walk.first_bad,
        problems=walk.told(),
        blobs_checked=len(walk.named),
        blobs_missing=missing,
        blobs_extra=extra,
    )


@dataclass
class _Walk:
    """What is known while walking over the log."""

    events: int = 0
    prev: bytes = bytes(32)
    versions: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    """Blob digest -> position of the first event that names it."""
    first_bad: int | None = None
    problems: list[str] = field(default_factory=list)
    count: int = 0

    def problem(self, text: str, position: int | None = None) -> None:
        self.count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text if position is None else f"position {position}: {text}")
        if position is not None and self.first_bad is None:
            self.first_bad = position

    def told(self) -> tuple[str, ...]:
        more = self.count - len(self.problems)
        return (*self.problems, *([f"and {more} more problems"] if more else []))


def _check_schema(db: sqlite3.Connection, walk: _Walk) -> None:
    ((application,),) = db.execute("PRAGMA application_id")
    if application != APPLICATION_ID:
        walk.problem(f"application id {application} is not that of a log")
    ((version,),) = db.execute("PRAGMA user_version")
    found = schema_digest(db)
    if version not in SCHEMA_DIGESTS:
        walk.problem(f"schema version {version} is unknown to this version of the program")
    elif found != SCHEMA_DIGESTS[version]:
        walk.problem(f"the schema was changed: table, index or trigger (digest {found})")


def schema_digest(db: sqlite3.Connection) -> str:
    """Digest over every table, index and trigger as SQLite keeps them, so that a dropped fence is seen."""
    rows = db.execute(
        "SELECT type, name, tbl_name, CAST(coalesce(sql, '') AS BLOB) FROM sqlite_master ORDER BY type, name"
    ).fetchall()
    text = json.dumps([[kind, name, table, bytes(sql).decode(errors="replace")] for kind, name, table, sql in rows])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _check_events(db: sqlite3.Connection, walk: _Walk) -> None:
    rows = db.execute(
        "SELECT position, CAST(stream AS BLOB), version, CAST(event_id AS BLOB), CAST(kind AS BLOB), at_ns,"
        " CAST(payload AS BLOB), CAST(prev AS BLOB), CAST(hash AS BLOB) FROM events ORDER BY position"
    )
    expected = 1
    for row in rows:
        position = row[0]
        for text in _event_problems(row, expected, walk):
            walk.problem(text, position)
        walk.events += 1
        # go on from what is stored: one changed event is one bad event, not a bad rest of the log
        expected, walk.prev = position + 1, bytes(row[8] or b"")


def _event_problems(row: tuple[Any, ...], expected: int, walk: _Walk) -> Iterator[str]:
    position, stream, version, event_id, kind, at_ns, payload, prev, stored = row
    if position != expected:
        yield f"follows position {expected - 1}: events are missing"
    if version != walk.versions.get(stream, 0) + 1:
        yield f"version {version} follows version {walk.versions.get(stream, 0)} of its stream"
    if prev != walk.prev:
        yield "not chained to the event before it"
    fields = (position, stream, version, event_id, kind, at_ns, payload, prev)
    if any(part is None for part in fields) or _hash(fields) != stored:
        yield "its content does not match its hash"
    yield from _payload_problems(position, kind or b"", payload or b"", walk)
    walk.versions[stream] = version if isinstance(version, int) else 0  # a damaged row may hold any type


def _payload_problems(position: int, kind: bytes, payload: bytes, walk: _Walk) -> Iterator[str]:
    try:
        fact = FACT.validate_json(payload)
    except ValidationError as error:
        yield f"its payload does not parse as {kind.decode(errors='replace')!r}: {error.errors()[0]['msg']}"
        return
    if fact.kind.encode() != kind:
        yield f"its payload is a {fact.kind!r}, its kind says {kind.decode(errors='replace')!r}"
    for digest in blobs_named(json.loads(payload)):
        walk.named.setdefault(digest, position)


def _hash(fields: tuple[Any, ...]) -> bytes:
    parts = [b"assay.event.v1", *(part if isinstance(part, bytes) else str(part).encode() for part in fields)]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


def _check_structure(db: sqlite3.Connection, walk: _Walk) -> None:
    for (said,) in db.execute("PRAGMA integrity_check(10)"):
        if said != "ok":
            walk.problem(f"database structure: {' '.join(said.split())}")


def _check_blobs(root: Path, walk: _Walk) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Missing and extra digests; a damaged blob is a problem."""
    missing: list[str] = []
    for digest, position in walk.named.items():
        path = root / digest[7:9] / digest[9:]
        if not path.is_file():
            missing.append(digest)
            walk.problem(f"blob {digest}, named at position {position}, is missing")
        elif _file_digest(path) != digest:
            walk.problem(f"blob {digest}, named at position {position}, does not hash to its name")
    stored = (f"sha256:{path.parent.name}{path.name}" for path in root.glob("*/*"))
    return tuple(missing), tuple(sorted(set(stored) - walk.named.keys()))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _unreadable(error: sqlite3.DatabaseError, path: Path) -> str:
    """The problem that an unreadable database is; raises when it is not the log's fault that we cannot look."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        raise StoreLocked(f"{path} is locked by another program: {error}") from error
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY}:
        raise StoreReadOnly(f"{path}: {error}; even a reader needs a directory that it may write") from error
    return f"unreadable: {error}"


def _path(home: Path) -> Path:
    path = home / "log.sqlite"
    if not path.exists():
        raise StoreMissing(f"no log at {path}")
    return path


_ERRORS: dict[str, type[StoreError]] = {kind.__name__: kind for kind in (StoreMissing, StoreReadOnly, StoreLocked)}


def main(arguments: list[str]) -> int:
    """`python -m eventstore.verify HOME`: the report as JSON. Exit code 0 sound, 1 not sound, 2 could not look."""
    try:
        report = examine(Path(arguments[0]))
    except (StoreMissing, StoreReadOnly, StoreLocked) as error:
        sys.stdout.write(json.dumps({"error": type(error).__name__, "message": str(error)}) + "\n")
        return 2
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
