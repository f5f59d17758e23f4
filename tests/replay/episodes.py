"""SYNTHETIC episodes: made-up pairs driven through the real state machine, stored as real chained events in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from eventstore import canonical, facts
from eventstore.events import GENESIS, Event, chain_hash
from eventstore.facts import Fact, Pair
from ops.decide import Rules, code_digest
from replay.decisions import decision
from replay.fold import State, step
from tests.decide.synthetic import aa, pair

Change = Callable[[Pair], Pair]
SETTINGS = {"aa_pairs": 4, "finalist_pairs": 3, "max_candidates": 4, "rules": Rules(tries=4).settings()}


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def started(**fields: Any) -> facts.EpisodeStarted:
    given = {
        "bundle": digest("bundle"),
        "manifest": {"kernel.py": digest("kernel")},
        "operator": "rmsnorm",
        "dtype": "fp32",
        "shape": {"B": 1, "D": 64},
        "device": "cpu",
        "device_label": "cpu-interpreter",
        "engine": "fake",
        "settings": SETTINGS,
        "environment": {"synthetic": True},
        "decision_code": code_digest(),
    }
    return facts.EpisodeStarted(**{**given, **fields})


def proposed(index: int) -> facts.CandidateProposed:
    return facts.CandidateProposed(
        candidate=f"c{index:03d}",
        source=digest(f"source {index}"),
        normal=digest(f"normal {index}"),
        provider="mock",
        hypothesis=f"idea {index}",
    )


def played(
    speeds: Sequence[float], *, change: Change = lambda one: one, final: float = 1.0, **start: Any
) -> list[Fact]:
    """A whole episode. `speeds`: microseconds of each candidate beside a baseline of 100. `change` alters every
    candidate's pair, `final` multiplies the time of whoever is revalidated."""
    state, told = State("e-1"), []

    def tell(fact: Fact) -> None:
        nonlocal state
        state = step(state, fact)
        told.append(fact)

    while state.stage != "done":
        tell(decision(state) or _work(state, speeds, change, final, start))
    return told


def _work(state: State, speeds: Sequence[float], change: Change, final: float, start: dict[str, Any]) -> Fact:
    current = state.current
    match state.stage:
        case "start":
            return started(**start)
        case "baseline":
            return facts.BaselineMeasured(index=len(state.aa_pairs), pair=aa(4)[len(state.aa_pairs)])
        case "propose":
            done = state.proposals >= len(speeds)
            return facts.ProposalsEnded(reason="exhausted") if done else proposed(state.proposals + 1)
        case "build":
            return facts.CandidateBuilt(candidate=current.id, claim={}, outcome={"status": "exited"})
        case "measure":
            arms = {"baseline": 100.0, "candidate": speeds[len(state.candidates) - 1]}
            if state.incumbent != "baseline":
                arms["incumbent"] = speed_of(state.incumbent, speeds)
            index = len(current.pairs)
            made = change(pair(arms, seed=100 * len(state.candidates) + index))
            return facts.CandidateMeasured(candidate=current.id, index=index, incumbent=state.incumbent, pair=made)
    pairs = state.finalist_pairs.get(state.incumbent, ())
    arms = {"baseline": 100.0, "candidate": speed_of(state.incumbent, speeds) * final}
    return facts.FinalistMeasured(candidate=state.incumbent, index=len(pairs), pair=pair(arms, seed=9000 + len(pairs)))


def speed_of(candidate: str, speeds: Sequence[float]) -> float:
    return speeds[int(candidate[1:]) - 1]


def stored(told: Iterable[Fact], stream: str = "e-1", first: int = 1) -> list[Event]:
    """The facts as one stream's events at the positions from `first`."""
    events: list[Event] = []
    for index, fact in enumerate(told):
        prev = events[-1].hash if events else GENESIS
        event = Event(
            first + index, stream, index + 1, f"id-{first + index}", fact.kind, 0, canonical.encode(fact), b"", prev
        )
        events.append(replace(event, hash=chain_hash(event)))
    return events
