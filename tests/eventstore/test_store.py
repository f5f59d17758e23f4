"""Append and read: expected versions, idempotent ids, whole batches, order."""

import itertools
import stat
import sys
import threading

import pytest

from eventstore.errors import BadInput, Conflict, IdempotencyClash
from eventstore.events import GENESIS
from eventstore.facts import Faulted
from eventstore.store import ANY, NO_STREAM, STREAM_EXISTS, Event, Head, Store


def fault(n: int) -> Faulted:
    return Faulted(stage="test", detail="", attempt=n)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "home") as store:
        yield store


def test_an_event_is_returned_as_it_is_stored(store):
    (event,) = store.append("ep", [fault(1)], expected=NO_STREAM, event_ids=["one"], at_ns=7)
    payload = b'{"attempt":1,"detail":"","kind":"faulted","stage":"test"}'
    assert event == Event(1, "ep", 1, "one", "faulted", 7, payload, event.hash, GENESIS)
    assert list(store.read()) == [event]
    assert store.head() == Head(1, event.hash)


def test_a_log_is_the_same_after_it_was_closed_and_opened(tmp_path):
    with Store.open(tmp_path) as store:
        appended = store.append("ep", [fault(1), fault(2)], expected=ANY)
    with Store.open(tmp_path) as store:
        appended += store.append("ep", [fault(3)], expected=2)
        assert list(store.read()) == appended


def test_an_empty_log_has_nothing(store):
    assert (list(store.read()), store.streams(), store.head()) == ([], {}, Head(0, bytes(32)))


def test_positions_are_dense_over_all_streams_and_versions_inside_each(store):
    for stream in ("b", "a", "b", "b", "a"):
        store.append(stream, [fault(1)], expected=ANY)
    assert [(event.position, event.stream, event.version) for event in store.read()] == [
        (1, "b", 1),
        (2, "a", 1),
        (3, "b", 2),
        (4, "b", 3),
        (5, "a", 2),
    ]
    assert list(store.streams().items()) == [("b", 3), ("a", 2)]


def test_each_event_is_chained_to_the_one_before(store):
    events = store.append("a", [fault(1), fault(2)], expected=ANY) + store.append("b", [fault(3)], expected=ANY)
    assert [event.prev for event in events] == [GENESIS, events[0].hash, events[1].hash]


def test_reading_starts_after_a_position_stays_in_its_stream_and_stops_at_a_limit(store):
    for n in range(200):
        store.append("even" if n % 2 == 0 else "odd", [fault(n)], expected=ANY)
    assert [event.position for event in store.read()] == list(range(1, 201))
    assert [event.position for event in store.read("odd")] == list(range(2, 201, 2))
    assert [event.position for event in store.read("odd", after=101)] == list(range(102, 201, 2))
    assert [event.position for event in store.read(after=3, limit=130)] == list(range(4, 134))
    assert [event.position for event in store.read("even", after=100, limit=2)] == [101, 103]
    assert list(store.read("nothing")) == list(store.read(limit=0)) == list(store.read(after=200)) == []


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (NO_STREAM, "stream 'ep' is at version 2, expected no stream"),
        (0, "stream 'ep' is at version 2, expected 0"),
        (1, "stream 'ep' is at version 2, expected 1"),
        (3, "stream 'ep' is at version 2, expected 3"),
    ],
)
def test_a_stream_at_another_version_is_a_conflict_and_nothing_is_written(store, expected, message):
    store.append("ep", [fault(1), fault(2)], expected=NO_STREAM)
    with pytest.raises(Conflict) as caught:
        store.append("ep", [fault(3)], expected=expected)
    assert (str(caught.value), caught.value.actual, caught.value.expected) == (message, 2, expected)
    assert store.head().position == 2


def test_a_stream_that_must_exist_and_does_not_is_a_conflict(store):
    with pytest.raises(Conflict, match="stream 'ep' is at version 0, expected an existing stream"):
        store.append("ep", [fault(1)], expected=STREAM_EXISTS)
    assert store.append("ep", [fault(1)], expected=0)[0].version == 1
    assert store.append("ep", [fault(2)], expected=STREAM_EXISTS)[0].version == 2


@pytest.mark.parametrize("expected", [ANY, NO_STREAM, STREAM_EXISTS, 0, 2, 99])
def test_a_retry_returns_the_original_events_whatever_is_expected(store, expected):
    originals = store.append("ep", [fault(1), fault(2)], expected=NO_STREAM, event_ids=["a", "b"], at_ns=1)
    store.append("ep", [fault(3)], expected=ANY)
    again = store.append("ep", [fault(1), fault(2)], expected=expected, event_ids=["a", "b"], at_ns=2)
    assert again == originals
    assert store.head().position == 3


def test_an_id_with_another_body_is_a_clash_and_nothing_is_written(store):
    store.append("ep", [fault(1)], expected=ANY, event_ids=["a"])
    with pytest.raises(IdempotencyClash) as caught:
        store.append("ep", [fault(2)], expected=ANY, event_ids=["a"])
    assert str(caught.value) == "event id 'a' has another body at position 1"
    with pytest.raises(IdempotencyClash):
        store.append("other", [fault(1)], expected=ANY, event_ids=["a"])
    with pytest.raises(IdempotencyClash) as caught:
        store.append("ep", [fault(1), fault(2)], expected=ANY, event_ids=["a", "b"])
    assert str(caught.value) == "event id 'a' is at position 1, others of its batch are not"
    with pytest.raises(IdempotencyClash, match="event id 'c' stands twice in one batch"):
        store.append("ep", [fault(1), fault(1)], expected=ANY, event_ids=["c", "c"])
    assert store.head().position == 1


def test_a_batch_is_stored_whole_or_not_at_all(store):
    store.append("ep", [fault(1)], expected=ANY)
    with pytest.raises(BadInput):
        store.append("ep", [fault(2), Faulted(stage="x", detail="", attempt=2**60)], expected=ANY)
    assert store.head().position == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"facts": []}, "nothing to append"),
        ({"stream": ""}, "stream '' is not 1 to 200 printable characters"),
        ({"stream": "a\nb"}, r"stream 'a\\nb' is not 1 to 200 printable characters"),
        ({"stream": "x" * 201}, "is not 1 to 200 printable characters"),
        ({"event_ids": ["a\0"]}, "event id .* is not 1 to 200 printable characters"),
        ({"event_ids": ["a", "b"]}, "1 facts but 2 event ids"),
        ({"at_ns": -1}, "at_ns -1 is not a time"),
        ({"at_ns": 2**63}, "at_ns .* is not a time"),
    ],
)
def test_bad_input_is_one_clear_line(store, arguments, message):
    call = {"stream": "ep", "facts": [fault(1)], "expected": ANY} | arguments
    with pytest.raises(BadInput, match=message) as caught:
        store.append(call.pop("stream"), call.pop("facts"), **call)
    assert "\n" not in str(caught.value)
    assert store.head().position == 0


@pytest.fixture
def eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_share_one_store(store):
    def append(name: str) -> None:
        for n in range(25):
            store.append(name, [fault(n)], expected=n)

    threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.streams().keys() == set("abcd")
    assert [event.position for event in store.read()] == list(range(1, 101))


def test_a_tail_gives_what_is_there_and_then_what_comes(store):
    store.append("a", [fault(1)], expected=ANY)
    rounds = itertools.count()
    tail = store.tail(poll_s=0.001, stop=lambda: next(rounds) > 1000)  # an event missed ends the tail, not the test
    assert next(tail).position == 1
    store.append("b", [fault(2), fault(3)], expected=ANY)
    assert [next(tail).position, next(tail).position] == [2, 3]
    store.append("a", [fault(4)], expected=ANY)
    assert next(tail).position == 4
    tail.close()
    assert [event.position for event in store.tail(after=2, stop=lambda: True)] == [3, 4]


def test_the_files_are_ours_and_not_executable(store):
    names = {path.name for path in store.home.iterdir()}
    assert {"log.sqlite", "log.lock"} <= names <= {"log.sqlite", "log.lock", "log.sqlite-wal", "log.sqlite-shm"}
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o133 == 0 for path in store.home.iterdir())


def test_closing_twice_is_harmless(tmp_path):
    store = Store.open(tmp_path)
    store.close()
    store.close()
