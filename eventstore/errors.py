"""What can go wrong with the log, as one tree, so that a caller can name exactly the failures it knows how to answer.

    StoreError
    ├── BadInput            a value that can never be stored: not finite, too large, an unusable name
    ├── Conflict            the stream is not at the version that the caller expected
    ├── IdempotencyClash    an event id was used before, with another body
    ├── StoreLocked         somebody else held the log for longer than we were told to wait
    ├── StoreFull           no space: nothing was acknowledged, reads go on, a retry with the same ids is safe
    ├── StoreMissing        no log here
    ├── StoreReadOnly       opened for reading only, or the file system allows no more
    ├── StoreTooNew         written by a later version of this program
    ├── StoreCorrupt        what is stored is not what was appended; carries the first bad position where one is known
    ├── FenceRefused        the append-only triggers refused a write: a bug of ours, or another program's write
    ├── LibraryTooOld       this SQLite may corrupt a log that several processes write
    ├── StoreFailed         anything else that SQLite or the operating system reports
    └── BlobError
        ├── BlobMissing     no blob of that digest
        └── BlobCorrupt     its bytes do not hash to its name

Every message is one line, fit for a terminal.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of what this package raises."""


class BadInput(StoreError):
    """The caller's value can never be stored; nothing was written."""


class Conflict(StoreError):
    """The stream is at `actual` (its last version, 0 if it does not exist), not at what was `expected`."""

    def __init__(self, stream: str, expected: object, actual: int) -> None:
        super().__init__(f"stream {stream!r} is at version {actual}, expected {expected}")
        self.stream = stream
        self.expected = expected
        self.actual = actual


class IdempotencyClash(StoreError):
    """The event id stands in the log already, with another body."""

    def __init__(self, event_id: str, reason: str) -> None:
        super().__init__(f"event id {event_id!r} {reason}")
        self.event_id = event_id


class StoreLocked(StoreError):
    """Another writer held the log for the whole time that we were told to wait."""


class StoreFull(StoreError):
    """No space left. What was acknowledged before is stored; this was not acknowledged."""


class StoreMissing(StoreError):
    """There is no log at that place."""


class StoreReadOnly(StoreError):
    """This way of opening the log, or this file system, does not allow what was asked."""


class StoreTooNew(StoreError):
    """The log, or one event, was written by a later version of this program."""


class StoreCorrupt(StoreError):
    """What is stored is not what was appended. `position` is the first bad event, None when none can be named."""

    def __init__(self, position: int | None, reason: str) -> None:
        super().__init__(
            f"corrupt log: {reason}" if position is None else f"corrupt log at position {position}: {reason}"
        )
        self.position = position
        self.reason = reason


class FenceRefused(StoreError):
    """The append-only fence in the database refused a write."""


class LibraryTooOld(StoreError):
    """The SQLite library has a known corruption bug; writing through it is refused."""


class StoreFailed(StoreError):
    """SQLite or the operating system failed in a way that has no better name here."""


class BlobError(StoreError):
    """Base of what is about one blob."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"blob {digest} {reason}")
        self.digest = digest


class BlobMissing(BlobError):
    """No blob of that digest is stored."""


class BlobCorrupt(BlobError):
    """The stored bytes do not hash to the name they stand under."""
