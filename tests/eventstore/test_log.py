"""Events and blobs together: no event names a blob that is not stored."""

import pytest

from eventstore.errors import BlobMissing, StoreReadOnly
from eventstore.facts import CandidateProposed, Faulted
from eventstore.log import Log
from eventstore.store import ANY, NO_STREAM

ABSENT = "sha256:" + "a" * 64


def proposed(source: str, **more: str) -> CandidateProposed:
    return CandidateProposed(candidate="c001", source=source, normal=ABSENT, provider="mock", **more)


def test_an_event_is_appended_only_after_the_blob_that_it_names(tmp_path):
    with Log.open(tmp_path) as log:
        source = log.blobs.put(b"kernel")
        with pytest.raises(BlobMissing) as caught:
            log.append("ep", [Faulted(stage="s", detail="", attempt=1), proposed(source, reply=ABSENT)], expected=ANY)
        assert str(caught.value) == f"blob {ABSENT} is named by candidate.proposed but is not stored"
        assert log.head().position == 0
        (event,) = log.append("ep", [proposed(source)], expected=NO_STREAM)
        assert log.blobs.get(event.fact.source) == b"kernel"


def test_a_read_only_log_reads_events_and_blobs_and_writes_neither(tmp_path):
    with Log.open(tmp_path) as log:
        events = log.append("ep", [proposed(log.blobs.put(b"kernel"))], expected=ANY)
    with Log.open(tmp_path, read_only=True) as log:
        assert list(log.read("ep")) == list(log.tail(stop=lambda: True)) == events
        assert (log.streams(), log.head().hash) == ({"ep": 1}, events[0].hash)
        with pytest.raises(StoreReadOnly):
            log.blobs.put(b"other")
        with pytest.raises(StoreReadOnly):
            log.append("ep", [proposed(events[0].fact.source)], expected=ANY)
