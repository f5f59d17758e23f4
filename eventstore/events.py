"""One stored event, and the hash that chains it to the one before.

    hash = SHA-256 over the length-prefixed fields
           domain, position, stream, version, event_id, kind, at_ns, payload, prev

A length is 8 bytes, big-endian; numbers are decimal ASCII; text is the stored UTF-8; `prev` is the previous event's
hash, 32 zero bytes for the first. The domain names the format's version: a later format cannot be taken for this one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from eventstore.errors import StoreCorrupt, StoreTooNew
from eventstore.facts import FACT, Fact

DOMAIN = b"assay.event.v1"
GENESIS = bytes(32)
"""`prev` of position 1."""
KINDS: frozenset[str] = frozenset(model.model_fields["kind"].default for model in get_args(get_args(Fact)[0]))
"""Every kind that this version of the program can read."""

# text comes out as bytes, so that a damaged row is reported as such and not as a decoding error
COLUMNS = (
    "position, CAST(stream AS BLOB), version, CAST(event_id AS BLOB), CAST(kind AS BLOB), at_ns,"
    " CAST(payload AS BLOB), hash, prev"
)


@dataclass(frozen=True, slots=True)
class Event:
    """What the log holds at one position."""

    position: int
    """Over the whole log, from 1, dense, in commit order."""
    stream: str
    version: int
    """Inside the stream, from 1, dense."""
    event_id: str
    kind: str
    at_ns: int
    """When it was appended: the writer's clock, nanoseconds since 1970 UTC."""
    payload: bytes
    """The stored JSON, exactly."""
    hash: bytes
    prev: bytes

    @property
    def fact(self) -> Fact:
        """The payload, parsed. Raises StoreTooNew for an unknown kind, StoreCorrupt when it does not parse."""
        if self.kind not in KINDS:
            raise StoreTooNew(f"position {self.position}: kind {self.kind!r} is unknown to this version of the program")
        try:
            fact = FACT.validate_json(self.payload)
        except ValidationError as error:
            said = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise StoreCorrupt(self.position, f"its payload is no {self.kind}: {said}") from error
        if fact.kind != self.kind:
            raise StoreCorrupt(self.position, f"its payload is a {fact.kind}, its kind says {self.kind}")
        return fact


def chain_hash(event: Event) -> bytes:
    """What an event's `hash` must be, from its other fields: 32 bytes; the format is in the module's docstring."""
    digest = hashlib.sha256()
    for field in (
        DOMAIN,
        str(event.position).encode(),
        event.stream.encode(),
        str(event.version).encode(),
        event.event_id.encode(),
        event.kind.encode(),
        str(event.at_ns).encode(),
        event.payload,
        event.prev,
    ):
        digest.update(len(field).to_bytes(8, "big"))
        digest.update(field)
    return digest.digest()


def from_row(row: tuple[Any, ...]) -> Event:
    """One row of `COLUMNS` as an event. Raises StoreCorrupt when it is not what was appended."""
    position, stream, version, event_id, kind, at_ns, payload, digest, prev = row
    try:
        event = Event(
            position, stream.decode(), version, event_id.decode(), kind.decode(), at_ns, payload, digest, prev
        )
        intact = event.hash == chain_hash(event)
    except (AttributeError, TypeError, UnicodeDecodeError):  # a damaged row may hold any type anywhere
        raise StoreCorrupt(position, "a damaged row") from None
    if not intact:
        raise StoreCorrupt(position, "its content does not match its hash")
    return event
