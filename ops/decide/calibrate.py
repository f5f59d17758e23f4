"""The baseline against itself: how large a difference between identical kernels looks, here and today.

A/A half-width = |mean| + t * s / sqrt(n) over the A/A pairs' weighted log ratios: the bias of the order of arms plus
the uncertainty of that bias. It widens every interval of the same grade, so a gain inside it is `ambiguous`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from eventstore.facts import BaselineCalibrated, BaselineRefused, Pair
from ops.decide.rules import Rules
from ops.decide.stats import (
    AA_NEWCOMER,
    BASELINE,
    Observation,
    case_names,
    interval,
    observe,
    prediction,
    weighted,
    wrong_calls,
)

Calibration = BaselineCalibrated
Refusal = BaselineRefused

_DIGITS = 12


def calibrate(pairs: Sequence[Pair], rules: Rules) -> Calibration | Refusal:
    """Judge the baseline by its A/A pairs (arms `baseline` and `baseline-b`, the same source)."""
    refusal = _refused(pairs, rules)
    if refusal:
        return refusal
    seen = [observe(pair, cases_of(pairs, rules), incumbent=BASELINE, newcomer=AA_NEWCOMER) for pair in pairs]
    for index, one in enumerate(seen):
        if one.problem:
            return Refusal(reason=one.problem, detail=f"A/A pair {index}")
    if len({one.grade for one in seen}) != 1:
        return Refusal(reason="grade-mixed", detail="A/A pairs of different grades")
    return calibration_of(seen, rules)


def cases_of(pairs: Sequence[Pair], rules: Rules) -> tuple[str, ...]:
    """The cases that decisions look at, sorted: the order of a mapping does not survive the log."""
    return tuple(sorted(rules.weights)) or case_names(pairs[0])


def weights_of(cases: Sequence[str], rules: Rules) -> Mapping[str, float]:
    return rules.weights or dict.fromkeys(cases, 1.0)


def _refused(pairs: Sequence[Pair], rules: Rules) -> Refusal | None:
    if len(pairs) < 2:
        return Refusal(reason="incomplete", detail=f"{len(pairs)} A/A pairs; a spread needs two")
    for index, pair in enumerate(pairs):
        if not pair.bundle_intact:
            return Refusal(reason="bundle-tampered", detail=f"A/A pair {index}")
        for arm in (BASELINE, AA_NEWCOMER):
            wrong = wrong_calls(pair, arm)
            if wrong:
                return Refusal(reason=wrong[0].why, detail=f"A/A pair {index}, {arm}, case {wrong[0].case}")
    return None


def calibration_of(seen: Sequence[Observation], rules: Rules) -> Calibration | Refusal:
    """As `calibrate`, over pairs that are already reduced to numbers."""
    cases = tuple(seen[0].base)
    weights = weights_of(cases, rules)
    ratios = [weighted(one.base, weights) for one in seen]
    halfwidth = _bias(ratios, rules)
    if not halfwidth <= rules.max_aa_halfwidth:
        return Refusal(
            reason="baseline-unstable",
            detail=f"A/A half-width {halfwidth:.3f} is above {rules.max_aa_halfwidth} (log ratio, {len(seen)} pairs)",
        )
    return Calibration(
        aa_halfwidth=rounded(halfwidth),
        median_us={case: rounded(median([*_each(seen, "base_us", case), *_each(seen, "us", case)])) for case in cases},
        numbers={
            "grade": seen[0].grade,
            "pairs": len(seen),
            "log_ratios": [rounded(ratio) for ratio in ratios],
            "spread": rounded(abs(fmean(ratios)) + prediction(ratios, rules.alpha)),
            "beside": _usual([weighted(one.beside, weights) for one in seen], rules),
            "after": _usual([weighted(one.after, weights) for one in seen], rules),
            "cases": {
                case: {
                    "halfwidth": rounded(_bias(_each(seen, "base", case), rules)),
                    "beside": _usual(_each(seen, "beside", case), rules),
                    "cv": finite(median(_each(seen, "base_cv", case))),
                }
                for case in cases
            },
        },
    )


def _bias(ratios: Sequence[float], rules: Rules) -> float:
    """|mean| + t * s / sqrt(n), two-sided at alpha."""
    found = interval(ratios, rules.alpha / 2)
    return abs(found.mean) + found.half


def _usual(values: Sequence[float], rules: Rules) -> dict[str, float]:
    """What one more honest pair would show: a mean, and the half-width of a prediction at alpha on each side."""
    return {"mean": rounded(fmean(values)), "spread": rounded(prediction(values, rules.alpha))}


def _each(seen: Sequence[Observation], what: str, case: str) -> list[float]:
    return [getattr(one, what)[case] for one in seen]


def rounded(value: float) -> float:
    """12 significant digits: recorded numbers then agree between versions of the numerical library's last bit."""
    return float(f"{value:.{_DIGITS}g}")


def finite(value: float) -> float | None:
    """As `rounded`; None for what JSON cannot hold."""
    return rounded(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Usual:
    """A recorded prediction: how identical kernels differ in one respect."""

    mean: float
    spread: float

    def excess(self, value: float) -> float:
        """How far a value lies above all that identical kernels show; 0 inside."""
        return max(0.0, value - self.mean - self.spread)


@dataclass(frozen=True)
class Noise:
    """A calibration, read back from its event."""

    grade: str
    halfwidth: float
    spread: float
    beside: Usual
    after: Usual
    case_halfwidth: Mapping[str, float]
    case_beside: Mapping[str, Usual]

    @classmethod
    def of(cls, calibration: Calibration) -> Noise:
        """Raises ValueError, one line, when the event holds other numbers than `calibrate` writes."""
        numbers = calibration.numbers
        try:
            return cls(
                str(numbers["grade"]),
                calibration.aa_halfwidth,
                float(numbers["spread"]),
                Usual(**numbers["beside"]),
                Usual(**numbers["after"]),
                {case: float(one["halfwidth"]) for case, one in numbers["cases"].items()},
                {case: Usual(**one["beside"]) for case, one in numbers["cases"].items()},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a calibration that decisions can read: {error!r}") from None
