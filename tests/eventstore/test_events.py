"""The chain's format is for ever: a known answer written out by hand."""

import hashlib
from dataclasses import replace

import pytest

from eventstore.errors import StoreCorrupt, StoreTooNew
from eventstore.events import GENESIS, Event, chain_hash
from eventstore.facts import Faulted

PAYLOAD = b'{"attempt":1,"detail":"","kind":"faulted","stage":"s"}'
EVENT = Event(1, "ep", 1, "id", "faulted", 5, PAYLOAD, b"", GENESIS)


def test_the_hash_covers_every_field_with_its_length():
    def field(body: bytes) -> bytes:
        return len(body).to_bytes(8, "big") + body

    fields = [b"assay.event.v1", b"1", b"ep", b"1", b"id", b"faulted", b"5", PAYLOAD, bytes(32)]
    assert chain_hash(EVENT) == hashlib.sha256(b"".join(map(field, fields))).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"position": 2},
        {"stream": "e"},
        {"version": 2},
        {"event_id": "i"},
        {"kind": "fault"},
        {"at_ns": 6},
        {"payload": b"{}"},
        {"prev": b"\1" * 32},
        {"event_id": "idf", "kind": "aulted"},  # the same bytes in a row
    ],
)
def test_a_change_of_any_field_changes_the_hash(change):
    assert chain_hash(replace(EVENT, **change)) != chain_hash(EVENT)


def test_an_event_gives_its_fact():
    assert EVENT.fact == Faulted(stage="s", detail="", attempt=1)


def test_a_kind_of_a_later_version_is_refused_clearly():
    with pytest.raises(StoreTooNew) as caught:
        _ = replace(EVENT, kind="candidate.teleported").fact
    assert str(caught.value) == "position 1: kind 'candidate.teleported' is unknown to this version of the program"


def test_a_payload_that_is_not_its_kind_is_corrupt():
    with pytest.raises(StoreCorrupt, match="its payload is a faulted, its kind says"):
        _ = replace(EVENT, kind="episode.resumed").fact
    with pytest.raises(StoreCorrupt, match="its payload is no faulted"):
        _ = replace(EVENT, payload=b'{"kind":"faulted"}').fact
