"""What became of one kernel, for the person who asked: the verdict in words first, then the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from ops.decide.reasons import CANDIDATE, EPISODE
from replay import show
from replay.advice import OF_CANDIDATE, OF_EPISODE
from replay.fold import CandidateState, State

INDENT = " " * 11


def text(state: State) -> str:
    """The verdict of an episode with one candidate, then the account of the episode."""
    return "\n".join(verdict(state)) + "\n" + show.text(state)


def verdict(state: State) -> Iterator[str]:
    """Did it pass, why, and what can be done: one line each."""
    one = next(iter(state.candidates.values()), None)
    finished = state.finished
    if finished is None:
        yield f"verdict    none yet: go on with: assay resume {state.episode} (in the same --home)"
    elif finished.outcome == "winner":
        yield f"verdict    PASSED: {CANDIDATE['promoted']}"
        yield f"{INDENT}{finished.speedup:.3g}x over the baseline (at least {finished.lower:.3g}x), revalidated"
    elif finished.outcome == "fault":
        yield "verdict    NONE: our own failures ended it; nothing is said about the kernel"
        yield from _way_on(OF_EPISODE["faults"])
    elif state.refused is not None:
        reason = state.refused.reason
        yield f"verdict    NONE: the kernel was not looked at, for the baseline cannot be compared with: {reason}"
        yield f"{INDENT}{EPISODE.get(reason, '')}"
        yield from _way_on(OF_EPISODE.get(reason, ""))
    elif one is None:
        yield "verdict    NONE: the file could not be read"
    else:
        yield from _failed(state, one)


def _failed(state: State, one: CandidateState) -> Iterator[str]:
    """A candidate that did not make it: rejected, ambiguous, or promoted and then not held."""
    again = state.revalidated.get(one.id)
    told = again or one.rejected or one.judged
    reason = told.reason if told else ""
    open_end = one.judged is not None and one.judged.verdict == "ambiguous"
    yield f"verdict    {'UNDECIDED' if open_end else 'NOT PASSED'}: {reason}"
    yield f"{INDENT}{CANDIDATE.get(reason, '')}"
    if again:
        yield f"{INDENT}promoted at first; rebuilt and measured again, it did not hold"
    yield from _way_on(OF_CANDIDATE.get(reason, ""))


def _way_on(advice: str) -> Iterator[str]:
    if advice:
        yield f"{INDENT}to do: {advice}"
