"""Numbers of one pair, and intervals over pairs.

Blocks inside one process share its bias (memory layout, clocks, neighbours), so a pair yields ONE log ratio per case;
the pair, not the call or the block, is what an interval counts: Student's t with pairs - 1 degrees of freedom.

Inside a pair: the median over a block's calls, the log ratio of two arms of the same block, the median over blocks.
Medians, because on a shared machine single calls and whole blocks are descheduled for reasons that are nobody's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from scipy.special import stdtrit

from eventstore.facts import Pair, Series

BASELINE = "baseline"
NEWCOMER = "candidate"
AA_NEWCOMER = "baseline-b"
ALONE_BEFORE = -2
ALONE_AFTER = -3
_MAD_TO_SD = 1.4826  # a normal distribution's standard deviation over its median absolute deviation

Blocks = Mapping[int, float]
"""Block -> median nanoseconds of one arm's calls on one case in that block."""


@dataclass(frozen=True)
class Wrong:
    """One call that was not right."""

    case: str
    block: int
    why: str
    family: str = ""


@dataclass(frozen=True)
class Observation:
    """What one pair says, before any rule is applied. Log ratios are natural; above 0 the newcomer is faster."""

    grade: str
    intact: bool
    wrong: tuple[Wrong, ...] = ()
    """The newcomer's calls that were not right, in order."""
    outcome: Mapping[str, object] = field(default_factory=dict)
    """How the newcomer's container ended, as seen from outside."""
    problem: str = ""
    """Why this pair is no evidence on speed; the mappings below are then empty."""
    base: Mapping[str, float] = field(default_factory=dict)
    """Per case: log(baseline / newcomer), interleaved blocks."""
    over: Mapping[str, float] = field(default_factory=dict)
    """Per case: log(incumbent / newcomer), interleaved blocks."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Per case: log(baseline beside the newcomer / baseline alone before it existed)."""
    after: Mapping[str, float] = field(default_factory=dict)
    """Per case: log(baseline alone after the newcomer was gone / baseline alone before)."""
    cv: Mapping[str, float] = field(default_factory=dict)
    """Per case: robust coefficient of variation of the newcomer's block medians."""
    base_cv: Mapping[str, float] = field(default_factory=dict)
    us: Mapping[str, float] = field(default_factory=dict)
    """Per case: the newcomer's median, microseconds."""
    base_us: Mapping[str, float] = field(default_factory=dict)
    rivals: bool = False
    """Another candidate lived beside the newcomer (as the incumbent, though it may have forfeited)."""
    saved: Mapping[str, float] = field(default_factory=dict)
    """Per case: the log ratio that a newcomer gains by rewriting our shim, at most. It counts against a promotion only."""


@dataclass(frozen=True)
class Interval:
    """A mean with a symmetric half-width, both log ratios; `slack` is taken off the lower end alone."""

    mean: float
    half: float
    slack: float = 0.0

    @property
    def low(self) -> float:
        return self.mean - self.half - self.slack

    @property
    def high(self) -> float:
        return self.mean + self.half

    def widened(self, by: float) -> Interval:
        return Interval(self.mean, self.half + by, self.slack)


def interval(values: Sequence[float], alpha: float) -> Interval:
    """Student's t interval of the mean; each bound is missed with probability alpha.

    One value says nothing about its own error: its half-width is infinite, never zero.
    """
    if len(values) < 2:
        return Interval(fmean(values) if values else math.nan, math.inf)
    return Interval(fmean(values), student(alpha, len(values)) * deviation(values) / math.sqrt(len(values)))


def prediction(values: Sequence[float], alpha: float) -> float:
    """Half-width in which one more value of the same kind lies, missed on each side with probability alpha."""
    if len(values) < 2:
        return math.inf
    return student(alpha, len(values)) * deviation(values) * math.sqrt(1 + 1 / len(values))


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), by correctly rounded sums; `statistics.stdev` is exact but ten times slower."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def student(alpha: float, n: int) -> float:
    """Upper alpha quantile of Student's t with n - 1 degrees of freedom."""
    return float(stdtrit(n - 1, 1 - alpha))


def weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Weighted mean over the cases that have a value. Of log ratios: the log of the weighted geometric mean."""
    total = math.fsum(weights[case] for case in values)
    return math.fsum(weights[case] * value for case, value in values.items()) / total


def robust_cv(values: Iterable[float]) -> float:
    """Standard deviation over mean, by median absolute deviation and median: one descheduled block does not move it.

    Half of the blocks at another speed do. Fewer than three blocks say nothing: infinite.
    """
    found = list(values)
    if len(found) < 3:
        return math.inf
    middle = median(found)
    return _MAD_TO_SD * median(abs(value - middle) for value in found) / middle


def case_names(pair: Pair) -> tuple[str, ...]:
    """Every case with a call of the task's own distribution, in order of name."""
    return tuple(sorted({series.case for series in pair.series if not series.family}))


def blocks(pair: Pair, arm: str, case: str) -> Blocks:
    """Medians of one arm on one case per block, on the task's own distribution. A block with a bad time is left out."""
    calls: dict[int, list[int]] = {}
    for series in pair.series:
        if series.arm == arm and series.case == case and not series.family:
            calls.setdefault(series.block, []).extend(series.ns)
    return {block: median(ns) for block, ns in calls.items() if ns and min(ns) > 0}


def wrong_calls(pair: Pair, arm: str) -> tuple[Wrong, ...]:
    """Calls of an arm that were not right, in order. A call without a judgement counts as wrong."""
    return tuple(found for series in pair.series if series.arm == arm for found in _wrong_in(series))


def _wrong_in(series: Series) -> Iterable[Wrong]:
    for index in range(max(len(series.ns), len(series.why))):
        why = series.why[index] if index < len(series.why) else "protocol"
        if why:
            yield Wrong(series.case, series.block, why, series.family)


def observe(pair: Pair, cases: Sequence[str], *, incumbent: str = BASELINE, newcomer: str = NEWCOMER) -> Observation:
    """Reduce one pair to its numbers. `incumbent` is the arm to beat: `baseline` or `incumbent`."""
    ours = wrong_calls(pair, BASELINE)
    if any(not call.family for call in wrong_calls(pair, incumbent)):
        incumbent = BASELINE  # it forfeits: who is wrong in this role must not make itself unbeatable
    # a hidden family that the baseline itself gets wrong asks too much: nobody is held to it
    excused = {(call.case, call.family) for call in ours if call.family}
    wrong = tuple(call for call in wrong_calls(pair, newcomer) if (call.case, call.family) not in excused)
    seen = Observation(pair.grade, pair.bundle_intact, wrong, pair.outcomes.get(newcomer, {}))
    if any(not call.family for call in ours):
        return _unusable(seen, "baseline-wrong")
    timed = [case for case in cases if case not in {call.case for call in wrong}]
    arms = {arm: {case: blocks(pair, arm, case) for case in timed} for arm in (BASELINE, incumbent, newcomer)}
    if not timed or not all(_complete(arms, case) for case in timed):
        return _unusable(seen, "incomplete")
    base, rival, new = arms[BASELINE], arms[incumbent], arms[newcomer]
    beside = {case: median(_timed(base[case]).values()) for case in timed}
    return Observation(
        seen.grade,
        seen.intact,
        wrong,
        seen.outcome,
        base={case: _log_ratio(base[case], new[case]) for case in timed},
        over={case: _log_ratio(rival[case], new[case]) for case in timed},
        beside={case: math.log(beside[case] / base[case][ALONE_BEFORE]) for case in timed},
        after={case: math.log(base[case][ALONE_AFTER] / base[case][ALONE_BEFORE]) for case in timed},
        cv={case: robust_cv(_timed(new[case]).values()) for case in timed},
        base_cv={case: robust_cv(_timed(base[case]).values()) for case in timed},
        us={case: median(_timed(new[case]).values()) / 1e3 for case in timed},
        base_us={case: beside[case] / 1e3 for case in timed},
        rivals=any(series.arm == "incumbent" for series in pair.series),
        saved={case: _saved(new[case], pair, case) for case in timed},
    )


def _saved(new: Blocks, pair: Pair, case: str) -> float:
    """log((time + tax) / time): `device.tax_ns` is what a rewritten shim can save per call, measured by the judge."""
    tax = float((pair.device.get("tax_ns") or {}).get(case, 0))
    return math.log1p(tax / median(_timed(new).values()))


def _unusable(seen: Observation, problem: str) -> Observation:
    return Observation(seen.grade, seen.intact, seen.wrong, seen.outcome, problem)


def _timed(of: Blocks) -> Blocks:
    return {block: ns for block, ns in of.items() if block >= 0}


def _complete(arms: Mapping[str, Mapping[str, Blocks]], case: str) -> bool:
    """Every arm in the same interleaved blocks, and the baseline alone before and after."""
    rounds = {frozenset(_timed(of[case])) for of in arms.values()}
    return len(rounds) == 1 and rounds != {frozenset()} and {ALONE_BEFORE, ALONE_AFTER} <= set(arms[BASELINE][case])


def _log_ratio(rival: Blocks, new: Blocks) -> float:
    return median(math.log(rival[block] / new[block]) for block in _timed(new))
