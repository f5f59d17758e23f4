"""Any order of appends, retries and clashes, against a model that is a dictionary."""

import itertools
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventstore.errors import Conflict, IdempotencyClash
from eventstore.facts import Faulted
from eventstore.store import ANY, NO_STREAM, STREAM_EXISTS, Store
from eventstore.verify import examine

STREAMS = st.sampled_from(["a", "b", "c"])
EXPECTED = st.sampled_from([ANY, NO_STREAM, STREAM_EXISTS]) | st.integers(-1, 6)
SIZES = st.integers(1, 3)


def agreed(expected: object, version: int) -> bool:
    match expected:
        case int():
            return version == expected
        case _:
            return {ANY: True, NO_STREAM: version == 0, STREAM_EXISTS: version > 0}[expected]


class Appends(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.home = Path(tempfile.mkdtemp())
        self.store = Store.open(self.home)
        self.numbers = itertools.count(1)
        self.batches = []
        self.model = []  # (stream, version, event id, attempt) of each position

    def version(self, stream):
        return sum(row[0] == stream for row in self.model)

    @rule(stream=STREAMS, expected=EXPECTED, size=SIZES)
    def append(self, stream, expected, size):
        numbers = [next(self.numbers) for _ in range(size)]
        facts = [Faulted(stage="s", detail="", attempt=n) for n in numbers]
        ids = [f"id-{n}" for n in numbers]
        version = self.version(stream)
        if not agreed(expected, version):
            with pytest.raises(Conflict) as caught:
                self.store.append(stream, facts, expected=expected, event_ids=ids)
            assert (caught.value.stream, caught.value.expected, caught.value.actual) == (stream, expected, version)
            return
        events = self.store.append(stream, facts, expected=expected, event_ids=ids)
        self.batches.append((stream, facts, ids, events))
        self.model += [(stream, version + i, ids[i - 1], numbers[i - 1]) for i in range(1, size + 1)]

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), expected=EXPECTED)
    def retry(self, data, expected):
        stream, facts, ids, events = data.draw(st.sampled_from(self.batches))
        assert self.store.append(stream, facts, expected=expected, event_ids=ids) == events

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), expected=EXPECTED, how=st.sampled_from(["body", "stream", "longer"]))
    def clash(self, data, expected, how):
        stream, facts, ids, _ = data.draw(st.sampled_from(self.batches))
        other = Faulted(stage="other", detail="", attempt=0)
        call = {
            "body": (stream, [*facts[:-1], other], ids),
            "stream": ("elsewhere", facts, ids),
            "longer": (stream, [*facts, other], [*ids, "new"]),
        }[how]
        with pytest.raises(IdempotencyClash):
            self.store.append(call[0], call[1], expected=expected, event_ids=call[2])

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.home)

    @invariant()
    def the_log_is_the_model(self):
        stored = [(e.stream, e.version, e.event_id, e.fact.attempt) for e in self.store.read()]
        assert stored == self.model
        assert [e.position for e in self.store.read()] == list(range(1, len(self.model) + 1))
        assert self.store.streams() == {stream: self.version(stream) for stream in {row[0] for row in self.model}}

    def teardown(self):
        if not hasattr(self, "home"):
            return
        self.store.close()
        report = examine(self.home)
        shutil.rmtree(self.home)
        assert (report.ok, report.events, report.problems) == (True, len(self.model), ())


test_appends_agree_with_the_model = Appends.TestCase
test_appends_agree_with_the_model.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
