"""The append-only log of one home: many processes may append, any number may read.

An append takes the writers' lock, opens an immediate transaction (a deferred one that reads before it writes fails at
once when another writer was faster), looks at the stream's version, inserts, commits with a synced write-ahead log, and
only then returns. Under that one lock the next position is the last plus one, so positions have no holes and come in
commit order: a reader that has seen position n has seen everything before it.

Never open `log.sqlite` by other means (the standard library's sqlite3, a copy, a checksum) in a process that holds a
`Store` on it: when that other file descriptor closes, the kernel drops SQLite's locks of the whole process.
`eventstore.verify` uses a process of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from eventstore.batch import ANY, NO_STREAM, STREAM_EXISTS, Entry, Expect, Expected, batch, check_expected
from eventstore.errors import IdempotencyClash, StoreCorrupt, StoreMissing, StoreReadOnly
from eventstore.events import COLUMNS, GENESIS, Event, chain_hash, from_row
from eventstore.facts import Fact
from eventstore.files import make_durable_dir, sync_dir
from eventstore.lock import WriterLock
from eventstore.schema import check_library, prepare_to_read, prepare_to_write
from eventstore.translate import translated

__all__ = ["ANY", "NO_STREAM", "STREAM_EXISTS", "Event", "Expect", "Expected", "Head", "Store"]

PAGE = 64
"""Events read by one statement: a reader that pauses between pages holds no snapshot and stops no checkpoint."""
TAIL_CHECKED = 64
"""Last events whose chain is checked when a log is opened for writing."""


@dataclass(frozen=True)
class Head:
    """Where the log ends: position 0 and 32 zero bytes when it is empty."""

    position: int
    hash: bytes


class Store:
    """The log of one home; may be shared by threads. Open it with `Store.open`; close it, or use it in a `with`."""

    def __init__(self, home: Path, connection: apsw.Connection, lock: WriterLock | None) -> None:
        self.home = home
        self.path = home / "log.sqlite"
        self._connection = connection
        self._lock = lock
        self._mutex = threading.RLock()

    @classmethod
    def open(cls, home: Path, *, read_only: bool = False, create: bool = True, wait_s: float = 10.0) -> Store:
        """Open `home/log.sqlite`; for writing it is created when absent, unless `create` is false.

        `wait_s` bounds the wait for other writers, here and at each append. Raises StoreMissing, StoreLocked,
        StoreFull, StoreReadOnly, StoreCorrupt (the last events are checked), StoreTooNew, LibraryTooOld.
        """
        home = home.absolute()
        with translated(home / "log.sqlite"):
            return _open_to_read(home, wait_s) if read_only else _open_to_write(home, wait_s, create=create)

    def append(
        self,
        stream: str,
        facts: Sequence[Fact],
        *,
        expected: Expected,
        event_ids: Sequence[str] | None = None,
        at_ns: int | None = None,
    ) -> list[Event]:
        """Append the facts to the stream, all or none, and return them as stored once they are durable.

        A batch whose event ids all stand in this stream with the same bodies is a retry: it writes nothing, whatever
        `expected` says, and returns the original events. Raises Conflict, IdempotencyClash (an id with another body,
        or a batch of which only a part stands in the log), BadInput, StoreLocked, StoreFull, StoreReadOnly.
        """
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading only")
        at_ns = time.time_ns() if at_ns is None else at_ns
        entries = batch(stream, facts, event_ids, at_ns)
        with self._mutex, translated(self.path, self._connection), self._lock.held(), self._transaction():
            if originals := self._originals(stream, entries):
                return originals
            version = self._last_version(stream)
            check_expected(stream, expected, version)
            return self._insert(stream, version, entries, at_ns)

    def read(self, stream: str | None = None, after: int = 0, limit: int | None = None) -> Iterator[Event]:
        """Events with a position above `after`, in order; of one stream, or of all; at most `limit`.

        A changed event (its hash is checked) or a hole raises StoreCorrupt: what is returned was appended. That damage
        or an owner cut off the end, only `eventstore.verify` and a head kept elsewhere can tell.
        """
        # inside a stream the order of versions is the order of positions, and (stream, version) is the index
        where, key, cursor = "position > :cursor", "position", max(after, 0)
        if stream is not None:
            where, key = "stream = :stream AND version > :cursor", "version"
            cursor = self._last_version(stream, up_to=after)
        sql = f"SELECT {COLUMNS} FROM events WHERE {where} ORDER BY {key} LIMIT :page"
        left = limit
        while left is None or left > 0:
            page = PAGE if left is None else min(PAGE, left)
            rows = self._all(sql, {"stream": stream, "cursor": cursor, "page": page})
            for cursor, row in enumerate(rows, cursor + 1):  # noqa: B020 (the next page goes on from here)
                event = from_row(row)
                if cursor != getattr(event, key):
                    raise StoreCorrupt(event.position, f"there is no {key} {cursor}")
                yield event
            if len(rows) < page:
                return
            left = None if left is None else left - len(rows)

    def streams(self) -> dict[str, int]:
        """Every stream with its last version, in the order in which they began."""
        return dict(self._all("SELECT stream, max(version) FROM events GROUP BY stream ORDER BY min(position)"))

    def head(self) -> Head:
        """Position and hash of the last event."""
        rows = self._all("SELECT position, hash FROM events ORDER BY position DESC LIMIT 1")
        return Head(*rows[0]) if rows else Head(0, GENESIS)

    def tail(self, after: int = 0, *, poll_s: float = 0.05, stop: Callable[[], bool] | None = None) -> Iterator[Event]:
        """Events above `after`, and then each new one as any process commits it; every event once, in order.

        Waits without end, or until `stop()` is true; what was committed before that is still yielded. A wait costs one
        `PRAGMA data_version` every `poll_s` seconds, on a connection of its own.
        """
        with Store.open(self.home, read_only=True) as reader:
            seen: int | None = None
            while True:
                stopping = stop is not None and stop()
                version = reader._data_version()
                if version != seen:
                    for event in reader.read(after=after):
                        after = event.position
                        yield event
                    seen = version  # taken before the read: a commit during the read is found by the next round
                if stopping:
                    return
                time.sleep(poll_s)

    def close(self) -> None:
        """Close the log; closing twice is harmless."""
        with self._mutex, translated(self.path):
            self._connection.close()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # SQLite ends some failed transactions (a full disk) by itself
                self._connection.execute("ROLLBACK")

    def _all(self, sql: str, values: dict[str, object] | None = None) -> list[tuple[Any, ...]]:
        with self._mutex, translated(self.path, self._connection):
            return self._connection.execute(sql, values).fetchall()

    def _last_version(self, stream: str, up_to: int | None = None) -> int:
        sql = "SELECT coalesce(max(version), 0) FROM events WHERE stream = :stream"
        sql += "" if up_to is None else " AND position <= :up_to"
        ((version,),) = self._all(sql, {"stream": stream, "up_to": up_to})
        return int(version)

    def _data_version(self) -> int:
        ((version,),) = self._all("PRAGMA data_version")
        return int(version)

    def _originals(self, stream: str, entries: list[Entry]) -> list[Event]:
        """The stored events of a retried batch; empty when none of its ids is known."""
        found: list[Event] = []
        for entry in entries:
            rows = self._all(f"SELECT {COLUMNS} FROM events WHERE event_id = :id", {"id": entry.event_id})
            for event in map(from_row, rows):
                if (event.stream, event.payload) != (stream, entry.payload):
                    raise IdempotencyClash(event.event_id, f"has another body at position {event.position}")
                found.append(event)
        if found and len(found) != len(entries):
            raise IdempotencyClash(
                found[0].event_id, f"is at position {found[0].position}, others of its batch are not"
            )
        return found

    def _insert(self, stream: str, version: int, entries: list[Entry], at_ns: int) -> list[Event]:
        head = self.head()
        events: list[Event] = []
        for step, entry in enumerate(entries, 1):
            prev = events[-1].hash if events else head.hash
            position, payload = head.position + step, entry.payload
            event = Event(position, stream, version + step, entry.event_id, entry.kind, at_ns, payload, b"", prev)
            event = replace(event, hash=chain_hash(event))
            self._connection.execute(
                "INSERT INTO events (position, stream, version, event_id, kind, at_ns, payload, prev, hash)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    position,
                    stream,
                    event.version,
                    event.event_id,
                    event.kind,
                    at_ns,
                    payload.decode(),
                    prev,
                    event.hash,
                ),
            )
            events.append(event)
        return events


def _open_to_read(home: Path, wait_s: float) -> Store:
    path = home / "log.sqlite"
    if not path.exists():
        raise StoreMissing(f"no log at {path}")
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY, wait_s)
    with _closed_on_failure(connection), translated(path, connection):
        prepare_to_read(connection, path)
        return Store(home, connection, None)


def _open_to_write(home: Path, wait_s: float, *, create: bool) -> Store:
    check_library()
    path = home / "log.sqlite"
    if not create and not path.exists():
        raise StoreMissing(f"no log at {path}")
    make_durable_dir(home)
    lock = WriterLock(home / "log.lock", wait_s)
    with _closed_on_failure(lock), lock.held():
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, wait_s)
        with _closed_on_failure(connection), translated(path, connection):
            prepare_to_write(connection, path)
            sync_dir(home)
            store = Store(home, connection, lock)
            _check_tail(store)
            return store


def _connect(path: Path, flags: int, wait_s: float) -> apsw.Connection:
    connection = apsw.Connection(os.fspath(path), flags=flags)
    connection.set_busy_timeout(int(wait_s * 1000))
    return connection


@contextmanager
def _closed_on_failure(resource: apsw.Connection | WriterLock) -> Iterator[None]:
    try:
        yield
    except BaseException:
        resource.close()
        raise


def _check_tail(store: Store) -> None:
    """Raise StoreCorrupt when one of the last events is not intact, or not chained to the one before it."""
    start = max(0, store.head().position - TAIL_CHECKED)
    position, prev = start, GENESIS if start == 0 else None
    for event in store.read(after=start):
        if event.position != position + 1 or prev not in {None, event.prev}:
            raise StoreCorrupt(event.position, "not chained to the event before it")
        position, prev = event.position, event.hash
