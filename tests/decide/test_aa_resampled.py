"""The yardstick: real H200 timings of identical kernels, resampled as processes. Nobody may be promoted.

Each line of the data is one process. A pair takes two random lines, one as the baseline and one as the candidate; so every
candidate is exactly as fast as the baseline, with the noise between real processes.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from statistics import fmean

import pytest

from eventstore.facts import Pair
from ops.decide import Calibration, Rules
from ops.decide.calibrate import calibration_of
from ops.decide.judge import rule
from ops.decide.stats import Observation, observe
from tests.decide.synthetic import AFTER, BEFORE, series

PROCESSES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "h200-identical-kernels.jsonl").read_text().splitlines()
]
KINDS = [(kernel, how) for kernel in ("rms2048", "rms16384", "mm4096") for how in ("single", "do_bench")]
RULES = Rules(tries=10)
EPISODES = 200


def observed(dice: random.Random, kernel: str, how: str) -> Observation:
    baseline, candidate = (one[kernel][how] for one in dice.sample(PROCESSES, 2))
    found = [series("baseline", "main", BEFORE, dice.choices(baseline, k=5))]
    for block in range(5):
        of = slice(2 * block, 2 * block + 2)
        found += [series("baseline", "main", block, baseline[of]), series("candidate", "main", block, candidate[of])]
    found += [series("baseline", "main", AFTER, dice.choices(baseline, k=5))]
    return observe(Pair(unit="resampled", grade="bracket", series=tuple(found), secret="00"), ("main",))


def promoted(dice: random.Random, pool: list[Observation], calibration: Calibration) -> bool:
    """One identical candidate, pair by pair to its verdict."""
    seen: list[Observation] = []
    while True:
        seen.append(dice.choice(pool))
        found = rule(seen, calibration, RULES)
        if found.verdict != "more":
            return found.verdict == "promote"


def naive(dice: random.Random, pool: list[Observation]) -> bool:
    """What a rule without intervals does with the same pairs."""
    return fmean(dice.choice(pool).base["main"] for _ in range(3)) > math.log(RULES.min_speedup)


@pytest.mark.parametrize(("kernel", "how"), KINDS)
def test_ten_identical_candidates_are_promoted_in_at_most_one_percent_of_episodes(kernel: str, how: str) -> None:
    dice = random.Random(f"{kernel} {how}")
    pool = [observed(dice, kernel, how) for _ in range(300)]
    episodes = winners = 0
    for _ in range(EPISODES):
        calibration = calibration_of(dice.sample(pool, 4), RULES)
        if isinstance(calibration, Calibration):
            episodes += 1
            winners += any(promoted(dice, pool, calibration) for _ in range(RULES.tries))
    assert episodes > 0.5 * EPISODES  # `rms2048` single has processes at several times the usual speed: refused
    assert winners <= 0.01 * episodes


def test_the_same_pairs_fool_a_rule_without_intervals() -> None:
    dice = random.Random(0)
    pool = [observed(dice, "rms2048", "do_bench") for _ in range(300)]
    fooled = sum(any(naive(dice, pool) for _ in range(RULES.tries)) for _ in range(EPISODES))
    assert fooled > 0.3 * EPISODES
