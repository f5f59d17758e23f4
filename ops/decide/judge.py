"""Numbers in, verdict out: whether a candidate is promoted, rejected, or cannot be told from the incumbent.

The rules, in order; the first that applies decides:

1. The bundle changed, or a call on a protected case was not right: reject. Every call counts, timed or not.
2. A pair is no evidence on speed when the baseline or incumbent was wrong in it, when calls are missing, when its grade
   is not the calibration's, or when the baseline was slow in it (3). It still counts towards `max_pairs`.
3. The baseline alone before the candidate existed is compared with the baseline beside it. Slower than A/A pairs show
   by more than `sabotage_margin`, and as fast as before once the candidate is gone: sabotage, a rejection when
   `sabotage_pairs` pairs and more than half of all show it. Where an incumbent lived in the pair too it is `rivals`:
   which of the two did it is unknown. Not recovered: the machine drifted. In every other pair the part of a slow-down
   that A/A pairs do not explain is taken off the candidate's ratio, so slowing the baseline a little gains nothing
   either.
4. Before `min_pairs`: reject `slower` if the best pair so far, plus the A/A spread and `screen_margin`, is still below
   the incumbent. This rule can only reject, so peeking with it costs no alpha.
5. From `min_pairs` on, a t interval over pairs at alpha / (tries * looks), widened by the A/A half-width, is looked at
   after each pair: promote, or reject when it lies wholly below the incumbent or below `min_speedup`. Its lower end is
   lowered further by what a candidate could save by rewriting our shim: that counts against a promotion, never for a
   rejection.
6. At `max_pairs` what is left is `ambiguous`, with the reason that stood in the way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from eventstore.facts import Pair
from ops.decide import reasons
from ops.decide.calibrate import Calibration, Noise, finite, rounded, weights_of
from ops.decide.rules import Rules
from ops.decide.stats import BASELINE, Interval, Observation, Wrong, interval, observe, weighted

Verdict = Literal["more", "promote", "reject", "ambiguous"]


@dataclass(frozen=True)
class Ruling:
    """A verdict with its reason; `more` asks for another pair. `numbers` is JSON-able and finite."""

    verdict: Verdict
    reason: str = ""
    detail: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


def decide(pairs: Sequence[Pair], calibration: Calibration, rules: Rules, incumbent: str = BASELINE) -> Ruling:
    """Rule on a candidate by its pairs so far. `incumbent`: `baseline`, or the candidate that is to be beaten."""
    arm = BASELINE if incumbent == BASELINE else "incumbent"
    cases = tuple(sorted(calibration.median_us))
    return rule(tuple(observe(pair, cases, incumbent=arm) for pair in pairs), calibration, rules)


def revalidate(pairs: Sequence[Pair], calibration: Calibration, rules: Rules) -> Ruling:
    """Rule on the finalist by its fresh pairs with the baseline: `promote` (it holds) or `reject`.

    One look at one candidate: alpha is not divided. Two pairs with evidence on speed are enough, as it has been
    promoted on at least `min_pairs` others.
    """
    once = rules.model_copy(update={"tries": 1, "min_pairs": 2, "max_pairs": 2})
    seen = tuple(observe(pair, tuple(sorted(calibration.median_us))) for pair in pairs)
    found = rule(seen, calibration, once)
    if found.verdict == "promote":
        return replace(found, reason="revalidated")
    if found.verdict == "reject":
        return found
    return replace(
        found,
        verdict="reject",
        reason="revalidation-failed",
        detail=f"{found.reason or 'more'}: {found.detail or 'too few pairs'}",
    )


def rule(seen: Sequence[Observation], calibration: Calibration, rules: Rules) -> Ruling:
    """The rules of this module over pairs that are already reduced to numbers."""
    if not seen:
        return Ruling("more")
    broken = _broken(seen, rules)
    if broken:
        return broken
    noise = Noise.of(calibration)
    marked = [_marked(one, noise, rules) for one in seen]
    culprits = [index for index, one in enumerate(marked) if one.problem == "sabotage"]
    if len(culprits) >= rules.sabotage_pairs and 2 * len(culprits) > len(seen):
        return Ruling("reject", "sabotage", f"in pairs {culprits}", {"sabotage_pairs": culprits})
    dropped = {call.case for one in seen for call in one.wrong}
    used = [_honest(one, noise, dropped) for one in marked if not one.problem]
    if used and not used[0].base:
        return Ruling("reject", "no-case-left", "every case was wrong", {"dropped": sorted(dropped)})
    case = _Case(tuple(used), marked, sorted(dropped), noise, rules, len(seen) >= rules.max_pairs)
    return case.ruling()


def _broken(seen: Sequence[Observation], rules: Rules) -> Ruling | None:
    """What needs no clock: the bundle and the outputs."""
    for index, one in enumerate(seen):
        if not one.intact:
            return Ruling("reject", "bundle-tampered", f"pair {index}")
        if one.problem == "baseline-wrong":
            continue
        for call in one.wrong:
            if _counts(call, rules) or one.problem:
                where = f"pair {index}, case {call.case}" + (f", family {call.family}" if call.family else "")
                return Ruling("reject", reasons.of_call(call.why, one.outcome), where, {"pair": index, "why": call.why})
    return None


def _counts(call: Wrong, rules: Rules) -> bool:
    return rules.protected is None or call.case in rules.protected


def _marked(one: Observation, noise: Noise, rules: Rules) -> Observation:
    """Mark a pair whose speed is no evidence."""
    if one.problem:
        return one
    if one.grade != noise.grade:
        return replace(one, problem="grade-mixed")
    weights = weights_of(tuple(one.base), rules)
    if noise.beside.excess(weighted(one.beside, weights)) <= rules.sabotage_margin:
        return one
    recovered = noise.after.excess(weighted(one.after, weights)) <= rules.sabotage_margin
    return replace(one, problem="drift" if not recovered else "rivals" if one.rivals else "sabotage")


def _honest(one: Observation, noise: Noise, dropped: set[str]) -> Observation:
    """Without the dropped cases, and without what a slow baseline would have given."""
    kept = [case for case in one.base if case not in dropped]
    off = {case: noise.case_beside[case].excess(one.beside[case]) for case in kept}
    return replace(
        one,
        base={case: one.base[case] - off[case] for case in kept},
        over={case: one.over[case] - off[case] for case in kept},
        saved={case: one.saved.get(case, 0.0) for case in kept},
    )


@dataclass(frozen=True)
class _Case:
    """What rules 4 to 6 look at."""

    used: tuple[Observation, ...]
    marked: Sequence[Observation]
    dropped: list[str]
    noise: Noise
    rules: Rules
    last: bool
    """No further pair may be asked for."""

    def ruling(self) -> Ruling:
        if len(self.used) < self.rules.min_pairs:
            return self._early()
        over, base = self._interval("over"), self._interval("base")
        needed = math.log(self.rules.min_speedup)
        regressed, suspect = self._regressed()
        unsteady = self._unsteady()
        better = over.low > 0 and base.low > 0 and base.mean - base.slack >= needed  # false for NaN too
        table: tuple[tuple[bool, Verdict, str], ...] = (
            (over.high < 0, "reject", "not-better"),
            (base.high < needed, "reject", "below-min-speedup"),
            (bool(regressed), "reject", "case-regression"),
            (unsteady == "unstable", "reject", "unstable"),
            (better and not suspect and not unsteady, "promote", "promoted"),
            (self.last, "ambiguous", unsteady or "ambiguous"),
        )
        for applies, verdict, reason in table:
            if applies:
                return self._say(verdict, reason, f"cases {regressed}" if reason == "case-regression" else "")
        return Ruling("more")

    def _early(self) -> Ruling:
        """Too few pairs for an interval."""
        if self.used and max(self._values("over")) + self.noise.spread + self.rules.screen_margin < 0:
            return self._say("reject", "slower")
        if not self.last:
            return Ruling("more")
        problems = Counter(one.problem for one in self.marked if one.problem)
        common = problems.most_common(1)[0][0] if problems else "ambiguous"
        return self._say("ambiguous", "drift" if common == "sabotage" else common)

    def _values(self, what: str) -> list[float]:
        """One number per pair."""
        return [weighted(getattr(one, what), weights_of(tuple(one.base), self.rules)) for one in self.used]

    def _interval(self, what: str) -> Interval:
        found = interval(self._values(what), self.rules.promotion_alpha).widened(self.noise.halfwidth)
        return replace(found, slack=max(self._values("saved")))

    def _regressed(self) -> tuple[list[str], list[str]]:
        """Protected cases below the limit: with confidence, and by point estimate (enough to hold a promotion)."""
        limit = math.log(self.rules.case_regression)
        sure, suspect = [], []
        for case in self.used[0].base:
            if self.rules.protected is not None and case not in self.rules.protected:
                continue
            found = interval([one.base[case] for one in self.used], self.rules.alpha)
            if found.widened(self.noise.case_halfwidth[case]).high < limit:
                sure.append(case)
            if not found.mean >= limit:
                suspect.append(case)
        return sure, suspect

    def _unsteady(self) -> str:
        """`unstable` if the candidate varies beside a steady baseline, `noisy` if both vary, "" if it is steady."""
        worst = ""
        for case in self.used[0].base:
            own = median(one.cv[case] for one in self.used)
            beside = median(one.base_cv[case] for one in self.used)
            if own <= self.rules.max_cv:
                continue
            if own > 2 * beside:
                return "unstable"
            worst = "noisy"
        return worst

    def _say(self, verdict: Verdict, reason: str, where: str = "") -> Ruling:
        numbers = self.numbers()
        text = f"{numbers['speedup']:.4g}x over the baseline" if numbers["speedup"] is not None else ""
        if numbers["lower"]:
            text += f" (at least {numbers['lower']:.4g}x)"
        parts = [where, text, f"{len(self.used)} of {len(self.marked)} pairs used"]
        return Ruling(verdict, reason, ", ".join(part for part in parts if part), numbers)

    def numbers(self) -> dict[str, Any]:
        """The account of a ruling: ratios are plain (above 1 = faster), times in microseconds, None = unbounded."""
        ratios = {"speedup": None, "lower": None, "upper": None}
        return {
            "pairs": len(self.marked),
            "used": len(self.used),
            "unused": {str(i): one.problem for i, one in enumerate(self.marked) if one.problem},
            "dropped": self.dropped,
            "grade": self.noise.grade,
            "alpha": rounded(self.rules.promotion_alpha),
            "aa_halfwidth": self.noise.halfwidth,
            "shim_tax": rounded(max(self._values("saved"))) if self.used else None,
            **(_ratios(self._interval("base")) if self.used else ratios),
            "over_incumbent": _ratios(self._interval("over")) if self.used else ratios,
            "log_ratios": [rounded(value) for value in self._values("base")],
            "median_us": finite(math.exp(self._us())) if self.used else None,
            "cases": {case: self._one(case) for case in (self.used[0].base if self.used else ())},
        }

    def _us(self) -> float:
        """Log of the weighted geometric mean over cases of the median over pairs, microseconds."""
        cases = tuple(self.used[0].base)
        return weighted(
            {case: math.log(median(one.us[case] for one in self.used)) for case in cases}, weights_of(cases, self.rules)
        )

    def _one(self, case: str) -> Mapping[str, float | None]:
        return {
            "speedup": _exp(interval([one.base[case] for one in self.used], self.rules.alpha).mean),
            "median_us": finite(median(one.us[case] for one in self.used)),
            "baseline_us": finite(median(one.base_us[case] for one in self.used)),
            "cv": finite(median(one.cv[case] for one in self.used)),
            "baseline_cv": finite(median(one.base_cv[case] for one in self.used)),
        }


def _ratios(found: Interval) -> dict[str, float | None]:
    return {"speedup": _exp(found.mean), "lower": _exp(found.low), "upper": _exp(found.high)}


def _exp(log_ratio: float) -> float | None:
    """A plain ratio; None when it is unbounded."""
    return rounded(math.exp(log_ratio)) if log_ratio < 700 else None
