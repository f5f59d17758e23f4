"""What a caller wants appended, checked before any lock is taken: names, ids and payloads; and the expected version."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from eventstore.canonical import encode
from eventstore.errors import BadInput, Conflict, IdempotencyClash
from eventstore.facts import Fact

MAX_NAME = 200
"""Characters of a stream's name or an event id."""


class Expect(Enum):
    """What a stream must be for an append, where it is not one exact version."""

    ANY = "any version"
    NO_STREAM = "no stream"
    STREAM_EXISTS = "an existing stream"

    def __str__(self) -> str:
        return self.value


ANY, NO_STREAM, STREAM_EXISTS = Expect.ANY, Expect.NO_STREAM, Expect.STREAM_EXISTS

Expected = int | Expect
"""An integer is exact: the stream's last version, 0 for a stream that does not exist yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event to be."""

    event_id: str
    kind: str
    payload: bytes


def batch(stream: str, facts: Sequence[Fact], event_ids: Sequence[str] | None, at_ns: int) -> list[Entry]:
    """The facts as entries, in order. Raises BadInput, or IdempotencyClash for one id twice."""
    _check_name(stream, "stream")
    if not 0 <= at_ns < 2**63:
        raise BadInput(f"at_ns {at_ns} is not a time")
    if not facts:
        raise BadInput("nothing to append")
    ids = [uuid.uuid4().hex for _ in facts] if event_ids is None else list(event_ids)
    if len(ids) != len(facts):
        raise BadInput(f"{len(facts)} facts but {len(ids)} event ids")
    for event_id in ids:
        _check_name(event_id, "event id")
        if ids.count(event_id) > 1:
            raise IdempotencyClash(event_id, "stands twice in one batch")
    return [Entry(event_id, fact.kind, encode(fact)) for event_id, fact in zip(ids, facts, strict=True)]


def check_expected(stream: str, expected: Expected, actual: int) -> None:
    """Raise Conflict unless a stream whose last version is `actual` (0: none) is what the caller expected."""
    match expected:
        case Expect.ANY:
            agreed = True
        case Expect.NO_STREAM:
            agreed = actual == 0
        case Expect.STREAM_EXISTS:
            agreed = actual > 0
        case int():
            agreed = actual == expected
    if not agreed:
        raise Conflict(stream, expected, actual)


def _check_name(name: str, what: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise BadInput(f"{what} {name[:MAX_NAME]!r} is not 1 to {MAX_NAME} printable characters")
