"""SYNTHETIC pairs: made-up times in the shape that a measurement unit returns. Nothing here was measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from eventstore.facts import Pair, Series
from ops.decide import Calibration, Rules, calibrate

VERIFY, BEFORE, AFTER = -1, -2, -3
Speed = float | Mapping[str, float]
"""Microseconds per call: for all cases, or per case."""


def series(arm: str, case: str, block: int, us: Sequence[float], why: str = "", family: str = "") -> Series:
    ns = tuple(max(0, round(1000 * one)) for one in us)
    return Series(arm=arm, case=case, block=block, ns=ns, why=(why,) * len(ns), worst=(0.1,) * len(ns), family=family)


def pair(
    arms: Mapping[str, Speed],
    *,
    seed: int = 0,
    cases: Sequence[str] = ("main",),
    blocks: int = 6,
    calls: int = 3,
    noise: float = 0.005,
    bias: float = 0.003,
    before: float = 1.0,
    after: float = 1.0,
    slow: Callable[[str, int], float] = lambda arm, block: 1.0,
    grade: str = "bracket",
    intact: bool = True,
) -> Pair:
    """One pair. `bias`: sd of each process's own log bias; `noise`: sd of each call's. `before` and `after`: the baseline
    alone, as a multiple of its own speed. `slow`: factor on an arm's calls in a block."""
    dice = random.Random(seed)
    own = {arm: dice.lognormvariate(0, bias) for arm in arms}

    def calls_of(arm: str, case: str, n: int, factor: float = 1.0) -> list[float]:
        speed = arms[arm]
        us = speed if isinstance(speed, int | float) else speed[case]
        return [us * own[arm] * factor * dice.lognormvariate(0, noise) for _ in range(n)]

    found: list[Series] = []
    for case in cases:
        found += [series(arm, case, VERIFY, calls_of(arm, case, 3)) for arm in arms]
        found += [series("baseline", case, BEFORE, calls_of("baseline", case, 5, before))]
        for block in range(blocks):
            found += [series(arm, case, block, calls_of(arm, case, calls, slow(arm, block))) for arm in arms]
        found += [series("baseline", case, AFTER, calls_of("baseline", case, 5, after))]
    return Pair(unit=f"synthetic-{seed}", grade=grade, series=tuple(found), secret="00", bundle_intact=intact)


def aa(n: int = 4, seed: int = 1000, baseline: Speed = 100.0, **keys: object) -> list[Pair]:
    return [pair({"baseline": baseline, "baseline-b": baseline}, seed=seed + i, **keys) for i in range(n)]  # type: ignore[arg-type]


def against(candidate: Speed, n: int = 3, seed: int = 2000, baseline: Speed = 100.0, **keys: object) -> list[Pair]:
    return [pair({"baseline": baseline, "candidate": candidate}, seed=seed + i, **keys) for i in range(n)]  # type: ignore[arg-type]


def calibrated(rules: Rules, pairs: Sequence[Pair] | None = None) -> Calibration:
    found = calibrate(pairs or aa(), rules)
    assert isinstance(found, Calibration), found
    return found


def judged_as(pair: Pair, why: str, *, arm: str = "candidate", block: int = 0, case: str = "main") -> Pair:
    """The same pair, with every call of one series judged `why`."""
    changed = tuple(
        one.model_copy(update={"why": (why,) * len(one.ns)})
        if (one.arm, one.block, one.case) == (arm, block, case)
        else one
        for one in pair.series
    )
    return pair.model_copy(update={"series": changed})
