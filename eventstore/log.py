"""Events and blobs of one home together, with the rule that joins them: no event names a blob that is not stored.

`Blobs.put` returns only when the blob is durable, and `Log.append` refuses an event whose blob is absent; so after a
crash the log never points at nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from eventstore.blobs import Blobs
from eventstore.errors import BlobMissing
from eventstore.events import Event
from eventstore.facts import Fact
from eventstore.references import blobs_named
from eventstore.store import Expected, Head, Store


class Log:
    """One home's log. Open it with `Log.open`; close it, or use it as a context manager."""

    def __init__(self, home: Path, store: Store, blobs: Blobs) -> None:
        self.home = home
        self.store = store
        self.blobs = blobs

    @classmethod
    def open(cls, home: Path, *, read_only: bool = False, create: bool = True, wait_s: float = 10.0) -> Log:
        """As `Store.open`, with the blobs beside it."""
        store = Store.open(home, read_only=read_only, create=create, wait_s=wait_s)
        return cls(store.home, store, Blobs(home, read_only=read_only))

    def append(
        self,
        stream: str,
        facts: Sequence[Fact],
        *,
        expected: Expected,
        event_ids: Sequence[str] | None = None,
        at_ns: int | None = None,
    ) -> list[Event]:
        """As `Store.append`; raises BlobMissing, and writes nothing, when a fact names a blob that is not stored."""
        for fact in facts:
            for digest in sorted(blobs_named(fact.model_dump())):
                if not self.blobs.has(digest):
                    raise BlobMissing(digest, f"is named by {fact.kind} but is not stored")
        return self.store.append(stream, facts, expected=expected, event_ids=event_ids, at_ns=at_ns)

    def read(self, stream: str | None = None, after: int = 0, limit: int | None = None) -> Iterator[Event]:
        """As `Store.read`."""
        return self.store.read(stream, after, limit)

    def tail(self, after: int = 0, *, poll_s: float = 0.05, stop: Callable[[], bool] | None = None) -> Iterator[Event]:
        """As `Store.tail`."""
        return self.store.tail(after, poll_s=poll_s, stop=stop)

    def streams(self) -> dict[str, int]:
        """As `Store.streams`."""
        return self.store.streams()

    def head(self) -> Head:
        """As `Store.head`."""
        return self.store.head()

    def close(self) -> None:
        """As `Store.close`."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
