"""An episode as its events made it: the state machine of the program, as a pure fold.

    start -> baseline -> propose -> build -> measure -> judge -> settle -> propose ... -> finalist -> finish -> done

`step` accepts what can have happened and refuses the rest (FoldError names position and kind). It never runs decision
code: an old log folds the same for ever, and `replay.rederive` says where today's decisions differ. Only `State.stage`,
which says what comes next, asks the decision code whether the measured pairs are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from eventstore.events import Event
from eventstore.facts import (
    BaselineCalibrated,
    BaselineMeasured,
    BaselineRefused,
    CandidateBuilt,
    CandidateJudged,
    CandidateMeasured,
    CandidatePromoted,
    CandidateProposed,
    CandidateRejected,
    CandidateVerified,
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Fact,
    Faulted,
    FinalistMeasured,
    FinalistRevalidated,
    Frozen,
    Pair,
    ProposalFailed,
    ProposalsEnded,
)
from ops.decide import Rules, Ruling, decide
from ops.decide.rules import aa_pairs

Stage = Literal[
    "start", "baseline", "propose", "build", "measure", "judge", "settle", "finalist", "finish", "done"
]  # fmt: skip
BASELINE = "baseline"
MAX_FAULTS = 3
"""A step that failed by our own fault is retried twice; the third fault in a row ends the episode."""


class FoldError(Exception):
    """An event that cannot have happened here: the log or its writer is broken. One line."""

    def __init__(self, kind: str, why: str, position: int | None = None) -> None:
        super().__init__(f"position {position}: {kind}: {why}" if position else f"{kind}: {why}")
        self.kind = kind
        self.why = why
        self.position = position


@dataclass(frozen=True)
class CandidateState:
    """One candidate's story so far."""

    proposed: CandidateProposed
    built: CandidateBuilt | None = None
    verified: CandidateVerified | None = None
    pairs: tuple[Pair, ...] = ()
    incumbent_at_measure: str = BASELINE
    """Who held the best place when this candidate was proposed, and so whom it is measured against."""
    judged: CandidateJudged | None = None
    rejected: CandidateRejected | None = None
    promoted: CandidatePromoted | None = None

    @property
    def id(self) -> str:
        return self.proposed.candidate

    @property
    def settled(self) -> bool:
        return self.rejected is not None or self.promoted is not None


@dataclass(frozen=True)
class State:
    """One episode. Mappings are in order of the log."""

    episode: str
    version: int = 0
    """Last version of the stream that was folded: the expected version of the next append."""
    position: int = 0
    started: EpisodeStarted | None = None
    aa_pairs: tuple[Pair, ...] = ()
    calibration: BaselineCalibrated | None = None
    refused: BaselineRefused | None = None
    candidates: Mapping[str, CandidateState] = field(default_factory=dict)
    failures: tuple[ProposalFailed, ...] = ()
    ended: ProposalsEnded | None = None
    finalist_pairs: Mapping[str, tuple[Pair, ...]] = field(default_factory=dict)
    revalidated: Mapping[str, FinalistRevalidated] = field(default_factory=dict)
    finished: EpisodeFinished | None = None
    faults: tuple[Faulted, ...] = ()
    recent_faults: tuple[Faulted, ...] = ()
    """Faults since the last event that was progress (resuming is none)."""
    resumed: int = 0

    @cached_property
    def rules(self) -> Rules:
        """The recorded thresholds. Raises RulesError."""
        return Rules.of(self.started.settings if self.started else {})

    @property
    def incumbent(self) -> str:
        """`baseline`, or the last promoted candidate that did not fail its revalidation."""
        standing = [one.id for one in self.candidates.values() if one.promoted and self._holds(one.id)]
        return standing[-1] if standing else BASELINE

    def _holds(self, candidate: str) -> bool:
        found = self.revalidated.get(candidate)
        return found is None or found.passed

    @property
    def winner(self) -> str | None:
        """The incumbent, once its revalidation passed."""
        return self.incumbent if self.incumbent in self.revalidated else None

    @property
    def current(self) -> CandidateState | None:
        """The one candidate that is neither rejected nor promoted."""
        last = list(self.candidates.values())[-1] if self.candidates else None
        return last if last and not last.settled else None

    @property
    def proposals(self) -> int:
        """Proposals asked for so far, the failed ones included."""
        return len(self.candidates) + len(self.failures)

    @property
    def aa_complete(self) -> bool:
        """Enough A/A pairs for the calibration."""
        return self.started is not None and len(self.aa_pairs) >= aa_pairs(self.started.settings)

    @cached_property
    def ruling(self) -> Ruling:
        """What today's decision code says of the current candidate's pairs so far."""
        if self.current is None or self.calibration is None:
            return Ruling("more")
        return decide(self.current.pairs, self.calibration, self.rules, self.current.incumbent_at_measure)

    @property
    def stage(self) -> Stage:
        """What comes next."""
        if self.started is None:
            return "start"
        if self.finished:
            return "done"
        if self.refused or len(self.recent_faults) >= MAX_FAULTS:
            return "finish"
        if self.calibration is None:
            return "baseline"
        return self._candidate_stage(self.current) if self.current else self._search_stage()

    def _candidate_stage(self, current: CandidateState) -> Stage:
        if current.built is None:
            return "build"
        if current.judged:
            return "settle"
        return "measure" if self.ruling.verdict == "more" else "judge"

    def _search_stage(self) -> Stage:
        if self.ended is None:
            return "propose"
        return "finish" if self.incumbent == BASELINE or self.winner else "finalist"


def fold(episode: str, events: Iterable[Event]) -> State:
    """The state after all events of one episode's stream, in order. Raises FoldError."""
    state = State(episode)
    for event in events:
        if event.stream != episode or event.version != state.version + 1:
            why = f"version {event.version} of {event.stream} after version {state.version} of {episode}"
            raise FoldError(event.kind, why, event.position)
        try:
            state = replace(step(state, event.fact), position=event.position)
        except FoldError as error:
            raise FoldError(error.kind, error.why, event.position) from None
    return state


def fold_all(events: Iterable[Event]) -> dict[str, State]:
    """Every episode of a log, in order of its first event. Streams whose first event starts no episode are left out."""
    streams: dict[str, list[Event]] = {}
    for event in events:
        streams.setdefault(event.stream, []).append(event)
    return {name: fold(name, found) for name, found in streams.items() if found[0].kind == "episode.started"}


def step(state: State, fact: Fact) -> State:
    """The state after one more fact. Raises FoldError when it cannot follow."""
    kind = fact.kind
    if (state.started is None) != (kind == "episode.started"):
        raise FoldError(kind, "the episode has started already" if state.started else "the episode has not started")
    if state.finished:
        raise FoldError(kind, "the episode is finished")
    after = _STEPS[type(fact)](state, fact)
    if not isinstance(fact, Faulted | EpisodeResumed):
        after = replace(after, recent_faults=())
    return replace(after, version=state.version + 1)


def _require(condition: object, fact: Fact, why: str) -> None:
    if not condition:
        raise FoldError(fact.kind, why)


def _started(state: State, fact: EpisodeStarted) -> State:
    return replace(state, started=fact)


def _baseline_measured(state: State, fact: BaselineMeasured) -> State:
    _require(not state.calibration and not state.refused, fact, "the baseline is judged already")
    _require(fact.index == len(state.aa_pairs), fact, f"index {fact.index} after {len(state.aa_pairs)} A/A pairs")
    return replace(state, aa_pairs=(*state.aa_pairs, fact.pair))


def _baseline_calibrated(state: State, fact: BaselineCalibrated) -> State:
    _require(not state.calibration and not state.refused, fact, "the baseline is judged already")
    _require(state.aa_pairs, fact, "nothing was measured")
    return replace(state, calibration=fact)


def _baseline_refused(state: State, fact: BaselineRefused) -> State:
    _require(not state.calibration and not state.refused, fact, "the baseline is judged already")
    return replace(state, refused=fact)


def _proposing(state: State, fact: Fact) -> None:
    _require(state.calibration, fact, "the baseline is not calibrated")
    _require(state.ended is None, fact, "proposals have ended")
    _require(state.current is None, fact, f"candidate {state.current.id if state.current else ''} is not settled")


def _proposed(state: State, fact: CandidateProposed) -> State:
    _proposing(state, fact)
    _require(fact.candidate not in state.candidates and fact.candidate != BASELINE, fact, f"{fact.candidate} exists")
    return _with(state, CandidateState(fact, incumbent_at_measure=state.incumbent))


def _proposal_failed(state: State, fact: ProposalFailed) -> State:
    _proposing(state, fact)
    _require(fact.index == state.proposals + 1, fact, f"index {fact.index} after {state.proposals} proposals")
    return replace(state, failures=(*state.failures, fact))


def _proposals_ended(state: State, fact: ProposalsEnded) -> State:
    _proposing(state, fact)
    return replace(state, ended=fact)


def _with(state: State, candidate: CandidateState) -> State:
    return replace(state, candidates=MappingProxyType({**state.candidates, candidate.id: candidate}))


def _open(state: State, fact: Any) -> CandidateState:
    """The current candidate, which the fact must be about."""
    current = state.current
    if current is None or current.id != fact.candidate:
        raise FoldError(fact.kind, f"{fact.candidate} is not the current candidate")
    return current


def _measurable(state: State, fact: Any) -> CandidateState:
    current = _open(state, fact)
    _require(current.built, fact, f"{current.id} is not built")
    _require(not current.judged, fact, f"{current.id} is judged already")
    return current


def _built(state: State, fact: CandidateBuilt) -> State:
    current = _open(state, fact)
    _require(not current.built, fact, f"{current.id} is built already")
    return _with(state, replace(current, built=fact))


def _verified(state: State, fact: CandidateVerified) -> State:
    current = _measurable(state, fact)
    _require(not current.verified, fact, f"{current.id} is verified already")
    return _with(state, replace(current, verified=fact))


def _measured(state: State, fact: CandidateMeasured) -> State:
    current = _measurable(state, fact)
    _require(fact.index == len(current.pairs), fact, f"index {fact.index} after {len(current.pairs)} pairs")
    _require(fact.incumbent == current.incumbent_at_measure, fact, f"{fact.incumbent} is not the incumbent")
    return _with(state, replace(current, pairs=(*current.pairs, fact.pair)))


def _judged(state: State, fact: CandidateJudged) -> State:
    current = _measurable(state, fact)
    _require(current.pairs, fact, f"{current.id} was not measured")
    return _with(state, replace(current, judged=fact))


def _rejected(state: State, fact: CandidateRejected) -> State:
    current = _open(state, fact)
    _require(not current.judged or current.judged.verdict != "promote", fact, f"{current.id} is to be promoted")
    return _with(state, replace(current, rejected=fact))


def _promoted(state: State, fact: CandidatePromoted) -> State:
    current = _open(state, fact)
    _require(current.judged and current.judged.verdict == "promote", fact, f"{current.id} has no such verdict")
    _require(fact.over == state.incumbent, fact, f"{fact.over} is not the incumbent")
    return _with(state, replace(current, promoted=fact))


def _revalidating(state: State, fact: FinalistMeasured | FinalistRevalidated) -> None:
    _require(state.ended and not state.current, fact, "the search has not ended")
    _require(fact.candidate == state.incumbent != BASELINE, fact, f"{fact.candidate} is not the finalist")
    _require(fact.candidate not in state.revalidated, fact, f"{fact.candidate} is revalidated already")


def _finalist_measured(state: State, fact: FinalistMeasured) -> State:
    _revalidating(state, fact)
    pairs = state.finalist_pairs.get(fact.candidate, ())
    _require(fact.index == len(pairs), fact, f"index {fact.index} after {len(pairs)} finalist pairs")
    more = {**state.finalist_pairs, fact.candidate: (*pairs, fact.pair)}
    return replace(state, finalist_pairs=MappingProxyType(more))


def _finalist_revalidated(state: State, fact: FinalistRevalidated) -> State:
    _revalidating(state, fact)
    measured = fact.candidate in state.finalist_pairs
    _require(measured or not fact.passed, fact, f"{fact.candidate} was not measured again")
    return replace(state, revalidated=MappingProxyType({**state.revalidated, fact.candidate: fact}))


def _faulted(state: State, fact: Faulted) -> State:
    return replace(state, faults=(*state.faults, fact), recent_faults=(*state.recent_faults, fact))


def _resumed(state: State, fact: EpisodeResumed) -> State:
    return replace(state, resumed=state.resumed + 1)


def _finished(state: State, fact: EpisodeFinished) -> State:
    if fact.outcome == "winner":
        _require(fact.winner and fact.winner == state.winner, fact, f"{fact.winner} is not the revalidated finalist")
    else:
        _require(fact.winner is None, fact, f"{fact.outcome} with a winner")
    if fact.outcome == "no-winner":
        _require(state.ended and state.incumbent == BASELINE, fact, "the search has not ended without a winner")
    if fact.outcome == "refused":
        _require(state.refused, fact, "the baseline was not refused")
    return replace(state, finished=fact)


_STEPS: dict[type[Frozen], Callable[[State, Any], State]] = {
    EpisodeStarted: _started,
    BaselineMeasured: _baseline_measured,
    BaselineCalibrated: _baseline_calibrated,
    BaselineRefused: _baseline_refused,
    CandidateProposed: _proposed,
    ProposalFailed: _proposal_failed,
    ProposalsEnded: _proposals_ended,
    CandidateBuilt: _built,
    CandidateVerified: _verified,
    CandidateMeasured: _measured,
    CandidateJudged: _judged,
    CandidateRejected: _rejected,
    CandidatePromoted: _promoted,
    FinalistMeasured: _finalist_measured,
    FinalistRevalidated: _finalist_revalidated,
    Faulted: _faulted,
    EpisodeResumed: _resumed,
    EpisodeFinished: _finished,
}
