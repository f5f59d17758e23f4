"""Replay of an episode: the state derived again from its events (level 1), and every decision made again (level 2).

The recorded numbers are served, never measured again. At each event the state machine of today is asked what comes next
and today's decision code what it decides; both must be what is recorded. The fold then goes on with the record, so that
one difference does not hide the next. Nothing is changed, and nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from eventstore.errors import StoreError
from eventstore.events import Event, chain_hash
from eventstore.facts import FACT, CandidateRejected, Fact, FinalistRevalidated
from eventstore.references import blobs_named
from ops.decide import code_digest
from replay.decisions import decision
from replay.fold import FoldError, Stage, State, fold, step


class Blobs(Protocol):
    """What a replay needs of the blob store: `get` hashes again and raises a StoreError."""

    def get(self, digest: str) -> bytes: ...


@dataclass(frozen=True)
class Divergence:
    """Where the record and today's code part."""

    position: int
    kind: str
    expected: Any
    """What today's code derives."""
    got: Any
    """What is recorded."""


@dataclass(frozen=True)
class Report:
    """What a replay found. `agree` also demands that events and blobs are intact."""

    episode: str
    agree: bool
    events: int
    checked: int
    """Decisions that were made again."""
    blobs_checked: int
    divergences: tuple[Divergence, ...]
    decision_code_same: bool
    """Whether the episode was decided by exactly this decision code."""
    recorded_code: str
    current_code: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# the stages in which the state machine asks for each kind; a kind that may always come is absent
_ASKED: dict[str, tuple[Stage, ...]] = {
    "episode.started": ("start",),
    "baseline.measured": ("baseline",),
    "baseline.calibrated": ("baseline",),
    "baseline.refused": ("baseline",),
    "candidate.proposed": ("propose",),
    "proposal.failed": ("propose",),
    "proposals.ended": ("propose",),
    "candidate.built": ("build",),
    "candidate.verified": ("measure",),
    "candidate.measured": ("measure",),
    "candidate.judged": ("judge",),
    "candidate.rejected": ("build", "judge", "settle"),
    "candidate.promoted": ("settle",),
    "finalist.measured": ("finalist",),
    "finalist.revalidated": ("finalist",),
    "episode.finished": ("finish",),
}
_DECIDED = {
    "baseline.calibrated",
    "baseline.refused",
    "candidate.judged",
    "candidate.rejected",
    "candidate.promoted",
    "finalist.revalidated",
    "episode.finished",
}


def replay(events: Iterable[Event], blobs: Blobs | None = None) -> Report:
    """Replay one episode's stream. With `blobs`, every blob that an event names is read and hashed again."""
    recorded = list(events)
    episode = recorded[0].stream if recorded else ""
    state, found, checked = State(episode), list(_broken(recorded)), 0
    for event in recorded:
        try:
            fact = event.fact
            difference = _compare(state, event, fact)
            checked += _is_decision(state, fact)
            found += [difference] if difference else []
            state = replace(step(state, fact), position=event.position)
        except (FoldError, StoreError) as error:
            found.append(Divergence(event.position, event.kind, str(error), None))
            break
    else:
        found += _folded_again(episode, recorded, state)
    count = 0
    if blobs is not None:
        count, missing = _blobs(recorded, blobs)
        found += missing
    code = state.started.decision_code if state.started else ""
    found.sort(key=lambda one: one.position)
    return Report(
        episode=episode,
        agree=bool(recorded) and not found,
        events=len(recorded),
        checked=checked,
        blobs_checked=count,
        divergences=tuple(found),
        decision_code_same=code == code_digest(),
        recorded_code=code,
        current_code=code_digest(),
    )


def _broken(events: list[Event]) -> Iterable[Divergence]:
    """Level 1: each event hashes to its hash, positions rise."""
    last = 0
    for event in events:
        if event.hash != chain_hash(event):
            yield Divergence(event.position, event.kind, "the hash of the stored fields", "another hash")
        if event.position <= last:
            yield Divergence(event.position, event.kind, f"a position after {last}", event.position)
        last = event.position


def _folded_again(episode: str, events: list[Event], state: State) -> list[Divergence]:
    if fold(episode, events) == state:
        return []
    return [Divergence(state.position, "fold", "the same state", "another state")]


def _compare(state: State, event: Event, fact: Fact) -> Divergence | None:
    """Whether the state machine asked for this event, and decides the same."""
    try:
        stage = state.stage
        due = _due(state, fact, stage)
    except ValueError as error:  # recorded settings or numbers that today's code cannot read
        return Divergence(event.position, event.kind, f"cannot be derived: {error}", fact.model_dump(mode="json"))
    if stage not in _ASKED.get(fact.kind, (stage,)):
        return Divergence(event.position, event.kind, _asks(stage, due), fact.model_dump(mode="json"))
    if due is None or FACT.validate_json(due.model_dump_json()) == fact:
        return None
    return Divergence(event.position, event.kind, due.model_dump(mode="json"), fact.model_dump(mode="json"))


def _due(state: State, fact: Fact, stage: Stage) -> Fact | None:
    """The decision that must stand here; None where the event tells of work, a fault or the outside world."""
    if fact.kind not in _ASKED or _told_by_a_build(state, fact):
        return None
    due = decision(state)
    if isinstance(fact, CandidateRejected) and stage == "judge" and state.ruling.verdict == "reject":
        ruling = state.ruling
        return CandidateRejected(candidate=fact.candidate, reason=ruling.reason, detail=ruling.detail)
    return due


def _asks(stage: Stage, due: Fact | None) -> Any:
    return due.model_dump(mode="json") if due else f"the stage is {stage}"


def _told_by_a_build(state: State, fact: Fact) -> bool:
    """A refusal, rejection or failed finalist that a build or the source itself gave: recorded, not decided."""
    if fact.kind == "baseline.refused":
        return not state.aa_complete
    if isinstance(fact, CandidateRejected):
        return state.current is not None and state.current.built is None
    return isinstance(fact, FinalistRevalidated) and fact.candidate not in state.finalist_pairs


def _is_decision(state: State, fact: Fact) -> bool:
    return fact.kind in _DECIDED and not _told_by_a_build(state, fact)


def _blobs(events: list[Event], blobs: Blobs) -> tuple[int, list[Divergence]]:
    """Every blob named: how many were read, and the ones that are absent or changed."""
    first: dict[str, Event] = {}
    for event in events:
        for digest in blobs_named(event.fact.model_dump()):
            first.setdefault(digest, event)
    lost = []
    for digest, event in first.items():
        try:
            blobs.get(digest)
        except StoreError as error:
            lost.append(Divergence(event.position, event.kind, digest, str(error)))
    return len(first), lost
