"""The events that are pure decisions, derived from the state alone.

The runner appends what `decision` returns; a replay calls it at the same state and compares with what is recorded. So a
decision is written in one place, and an event of it can always be derived again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventstore.facts import (
    CandidateJudged,
    CandidatePromoted,
    CandidateRejected,
    EpisodeFinished,
    Fact,
    FinalistRevalidated,
)
from ops.decide import calibrate, revalidate
from ops.decide.rules import finalist_pairs
from replay.fold import MAX_FAULTS, State


def decision(state: State) -> Fact | None:
    """The decision that is due, or None when something must be asked, built or measured first.

    Raises ValueError (one line) when the recorded settings or numbers are not what these decisions are made of.
    """
    match state.stage:
        case "baseline":
            return calibrate(state.aa_pairs, state.rules) if state.aa_complete else None
        case "judge":
            return _judged(state)
        case "settle":
            return _settled(state)
        case "finalist":
            return _revalidated(state)
        case "finish":
            return _finished(state)
    return None


def _judged(state: State) -> CandidateJudged:
    current, ruling = state.current, state.ruling
    assert current is not None
    assert ruling.verdict != "more"
    return CandidateJudged(
        candidate=current.id,
        verdict=ruling.verdict,
        reason=ruling.reason,
        detail=ruling.detail,
        numbers=ruling.numbers,
    )


def _settled(state: State) -> CandidatePromoted | CandidateRejected:
    current = state.current
    assert current is not None
    assert current.judged is not None
    judged = current.judged
    if judged.verdict != "promote":
        return CandidateRejected(candidate=current.id, reason=judged.reason, detail=judged.detail)
    return CandidatePromoted(
        candidate=current.id,
        over=state.incumbent,
        speedup=_number(judged.numbers, "speedup"),
        lower=_number(judged.numbers, "lower"),
    )


def _revalidated(state: State) -> FinalistRevalidated | None:
    assert state.started is not None
    assert state.calibration is not None
    pairs = state.finalist_pairs.get(state.incumbent, ())
    if len(pairs) < finalist_pairs(state.started.settings):
        return None
    ruling = revalidate(pairs, state.calibration, state.rules)
    return FinalistRevalidated(
        candidate=state.incumbent,
        passed=ruling.verdict == "promote",
        reason=ruling.reason,
        detail=ruling.detail,
        numbers=ruling.numbers,
    )


def _finished(state: State) -> EpisodeFinished:
    """A winner carries the speed-up of its revalidation: nothing was selected on those numbers."""
    if len(state.recent_faults) >= MAX_FAULTS:
        return EpisodeFinished(outcome="fault", stopping_reason="faults")
    if state.refused:
        return EpisodeFinished(outcome="refused", stopping_reason="baseline-refused")
    if state.winner is None:
        reason = "finalist-revalidation-failed" if state.revalidated else "no-candidate-promoted"
        return EpisodeFinished(outcome="no-winner", stopping_reason=reason)
    winner = state.candidates[state.winner]
    again = state.revalidated[state.winner].numbers
    return EpisodeFinished(
        outcome="winner",
        winner=winner.id,
        winner_source=winner.proposed.source,
        speedup=_number(again, "speedup"),
        lower=_number(again, "lower"),
        stopping_reason="finalist-revalidated",
    )


def _number(numbers: Mapping[str, Any], name: str) -> float:
    found = numbers.get(name)
    if not isinstance(found, float):
        raise ValueError(f"the recorded numbers hold no {name}")
    return found
