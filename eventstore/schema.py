"""The one table, and the fence around it: rows are added at the end, one after the other, and never touched again.

The fence is triggers, so any program that writes this file meets it, not only ours. It is a seat belt: an owner can
drop a trigger, and `eventstore.verify` then says so. `INSERT OR REPLACE` deletes the row it collides with without
firing a DELETE trigger (`recursive_triggers` is off by default), so the insert trigger itself looks for the collision:
a taken event id, a position or version that is not the next.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from eventstore.errors import LibraryTooOld, StoreCorrupt, StoreFailed, StoreMissing, StoreTooNew

APPLICATION_ID = 0x41535359
"""Marks a SQLite file as ours ("ASSY")."""
SCHEMA_VERSION = 1
OLDEST_SAFE_SQLITE = (3, 51, 3)
"""3.7.0 to 3.51.2 can corrupt a WAL database when two connections write or checkpoint at the same instant."""

SCHEMA = """
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    stream   TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    event_id TEXT    NOT NULL UNIQUE,
    kind     TEXT    NOT NULL,
    at_ns    INTEGER NOT NULL,
    payload  TEXT    NOT NULL,
    prev     BLOB    NOT NULL CHECK (length(prev) = 32),
    hash     BLOB    NOT NULL CHECK (length(hash) = 32),
    UNIQUE (stream, version)
) STRICT;

CREATE TRIGGER events_are_added_at_the_end BEFORE INSERT ON events BEGIN
    SELECT RAISE(ABORT, 'append-only: the event id is taken')
        WHERE EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id);
    SELECT RAISE(ABORT, 'append-only: positions are dense')
        WHERE NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events);
    SELECT RAISE(ABORT, 'append-only: versions are dense')
        WHERE NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM events WHERE stream = NEW.stream);
END;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'append-only: no update');
END;

CREATE TRIGGER events_are_never_removed BEFORE DELETE ON events BEGIN
    SELECT RAISE(ABORT, 'append-only: no delete');
END;
"""

_SETTINGS = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA mmap_size=0",
)


def check_library() -> None:
    """Raise LibraryTooOld unless this SQLite may write a log that several processes share."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < OLDEST_SAFE_SQLITE:
        oldest = ".".join(map(str, OLDEST_SAFE_SQLITE))
        raise LibraryTooOld(f"SQLite {version} can corrupt a shared log; writing needs {oldest} or later (update apsw)")


def prepare_to_read(connection: apsw.Connection, path: Path) -> None:
    """Settings of a reader. Raises StoreMissing, StoreTooNew or StoreCorrupt when this is no log that we can read."""
    _apply(connection, _SETTINGS)
    if _is_empty(connection):
        raise StoreMissing(f"{path} holds no log yet")
    _check_identity(connection, path)


def prepare_to_write(connection: apsw.Connection, path: Path) -> None:
    """Settings of a writer; creates the schema in an empty file. The caller holds the lock."""
    _apply(connection, (*_SETTINGS, "PRAGMA page_size=4096"))
    if _is_empty(connection):
        _create(connection)
    _check_identity(connection, path)
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        raise StoreFailed(f"{path}: this file system has no write-ahead log (journal mode {mode})")
    _apply(connection, ("PRAGMA synchronous=FULL", "PRAGMA wal_autocheckpoint=1000"))


def _apply(connection: apsw.Connection, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        connection.execute(pragma).fetchall()


def _is_empty(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_schema").get)


def _create(connection: apsw.Connection) -> None:
    connection.pragma("journal_mode", "wal")
    connection.execute(
        f"BEGIN IMMEDIATE; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};{SCHEMA}COMMIT"
    ).fetchall()


def _check_identity(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StoreCorrupt(None, f"{path} is a database, but not a log of this program")
    version = connection.pragma("user_version")
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"{path} has schema version {version}; this program knows {SCHEMA_VERSION}; update the program"
        )
