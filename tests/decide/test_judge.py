from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.facts import Pair
from ops.decide import Rules, Ruling, decide, revalidate
from ops.decide.judge import rule
from ops.decide.reasons import CALL, of_call
from ops.decide.stats import observe
from tests.decide.synthetic import aa, against, calibrated, judged_as, pair

RULES = Rules(tries=10)
CALIBRATION = calibrated(RULES)


def told(ruling: Ruling) -> tuple[str, str]:
    return ruling.verdict, ruling.reason


def test_twice_as_fast_is_promoted_with_three_pairs() -> None:
    pairs = against(50.0, 3)
    assert [told(decide(pairs[:n], CALIBRATION, RULES)) for n in (0, 1, 2)] == [("more", "")] * 3
    found = decide(pairs, CALIBRATION, RULES)
    assert told(found) == ("promote", "promoted")
    assert 1.8 < found.numbers["lower"] < found.numbers["speedup"] < 2.1
    assert found.numbers["median_us"] == pytest.approx(50, rel=0.02)


def test_no_ruling_rests_on_fewer_pairs_than_the_minimum_even_when_they_agree_exactly() -> None:
    exact = against(10.0, 1, noise=0, bias=0) * 2
    assert told(decide(exact, CALIBRATION, RULES)) == ("more", "")


def test_identical_is_ambiguous_after_the_last_pair() -> None:
    pairs = against(100.0, 6)
    assert [told(decide(pairs[:n], CALIBRATION, RULES))[0] for n in range(6)] == ["more"] * 6
    assert told(decide(pairs, CALIBRATION, RULES)) == ("ambiguous", "ambiguous")


@pytest.mark.parametrize("seed", range(40))
def test_a_bias_common_to_the_blocks_of_a_process_is_not_a_gain(seed: int) -> None:
    calibration = calibrated(RULES, aa(4, seed=10_000 + 10 * seed, bias=0.05, noise=0.0001))
    pairs = against(100.0, 6, seed=20_000 + 10 * seed, bias=0.05, noise=0.0001)
    assert "promote" not in {decide(pairs[:n], calibration, RULES).verdict for n in range(1, 7)}


def test_clearly_slower_is_rejected_after_the_first_pair() -> None:
    assert told(decide(against(150.0, 1), CALIBRATION, RULES)) == ("reject", "slower")


def test_a_little_slower_is_not_better() -> None:
    assert told(decide(against(103.0, 6, bias=0.0005), CALIBRATION, RULES)) == ("reject", "not-better")


def test_a_sure_gain_below_the_required_one_is_rejected() -> None:
    rules = Rules(min_speedup=2.0)
    assert told(decide(against(80.0, 3), CALIBRATION, rules)) == ("reject", "below-min-speedup")


def test_what_a_rewritten_shim_can_save_is_not_a_gain_and_not_a_loss() -> None:
    """A hostile guest that skips the shim's copy looks 25 % faster; an honest one of the same speed is not called slower for it."""
    rules = Rules()
    tax = {"tax_ns": {"main": 40_000, "odd": 40_000}}

    def taxed(us: float, n: int) -> list[Pair]:
        return [one.model_copy(update={"device": tax}) for one in against(us, n)]

    stripped = decide(taxed(80.0, 6), calibrated(rules), rules)
    assert stripped.verdict == "ambiguous"
    assert (stripped.numbers["lower"] or 0) < 1
    assert decide(taxed(100.0, 1), calibrated(rules), rules).verdict == "more"
    assert decide(taxed(40.0, 3), calibrated(rules), rules).verdict == "promote"


def test_an_incumbent_that_is_wrong_in_its_role_forfeits() -> None:
    """Else who is wrong only as the incumbent could never be beaten."""
    rules = Rules()
    pairs = []
    for one in against(50.0, 3):
        twins = tuple(
            s.model_copy(update={"arm": "incumbent"}) for s in one.series if s.arm == "baseline" and s.block >= 0
        )
        pairs.append(judged_as(one.model_copy(update={"series": (*one.series, *twins)}), "wrong", arm="incumbent"))
    assert decide(pairs, calibrated(rules), rules, "c001").verdict == "promote"


def test_a_better_candidate_must_beat_the_incumbent_and_not_only_the_baseline() -> None:
    pairs = [pair({"baseline": 100.0, "incumbent": 50.0, "candidate": 50.0}, seed=i) for i in range(6)]
    assert told(decide(pairs, CALIBRATION, RULES, "c001")) == ("ambiguous", "ambiguous")
    pairs = [pair({"baseline": 100.0, "incumbent": 50.0, "candidate": 25.0}, seed=i) for i in range(3)]
    assert told(decide(pairs, CALIBRATION, RULES, "c001")) == ("promote", "promoted")


@pytest.mark.parametrize("why", [why for why in CALL if why])
@pytest.mark.parametrize("block", [-1, 0, 5])
def test_one_call_that_was_not_right_ends_it_however_fast(why: str, block: int) -> None:
    pairs = against(1.0, 3)
    pairs[1] = judged_as(pairs[1], why, block=block)
    assert told(decide(pairs, CALIBRATION, RULES)) == ("reject", of_call(why, {}))


def test_a_wrong_call_in_a_pair_that_stopped_there_is_a_rejection() -> None:
    whole = against(50.0, 1)[0]
    stopped = whole.model_copy(update={"series": tuple(one for one in whole.series if one.block in (-1, -2))})
    assert told(decide([judged_as(stopped, "unwritten", block=-1)], CALIBRATION, RULES)) == ("reject", "unwritten")


def test_a_wrong_unprotected_case_drops_out_of_the_speed_and_a_protected_one_rejects() -> None:
    cases = {"cases": ("main", "side")}
    speeds = {"main": 50.0, "side": 200.0}
    calibration = calibrated(RULES, aa(4, **cases))
    pairs = [judged_as(one, "wrong", case="side") for one in against(speeds, 3, **cases)]
    loose = Rules(weights={"main": 1.0, "side": 1.0}, protected=("main",))
    found = decide(pairs, calibration, loose)
    assert told(found) == ("promote", "promoted")
    assert found.numbers["dropped"] == ["side"]
    assert told(decide(pairs, calibration, RULES)) == ("reject", "wrong")


def test_a_baseline_that_is_wrong_beside_it_is_not_its_fault_and_no_evidence() -> None:
    pairs = [judged_as(judged_as(one, "wrong", arm="baseline"), "wrong") for one in against(50.0, 6)]
    assert told(decide(pairs[:5], CALIBRATION, RULES)) == ("more", "")
    assert told(decide(pairs, CALIBRATION, RULES)) == ("ambiguous", "baseline-wrong")


def test_a_pair_without_evidence_is_replaced_by_another() -> None:
    pairs = [judged_as(one, "wrong", arm="baseline") for one in against(50.0, 1)] + against(50.0, 3, seed=3000)
    assert told(decide(pairs[:3], CALIBRATION, RULES)) == ("more", "")
    found = decide(pairs, CALIBRATION, RULES)
    assert told(found) == ("promote", "promoted")
    assert (found.numbers["used"], found.numbers["unused"]) == (3, {"0": "baseline-wrong"})


def test_a_changed_bundle_is_rejected_however_fast() -> None:
    pairs = [*against(50.0, 2), *against(50.0, 1, intact=False)]
    assert told(decide(pairs, CALIBRATION, RULES)) == ("reject", "bundle-tampered")


def test_another_grade_of_evidence_is_never_compared() -> None:
    assert told(decide(against(50.0, 6, grade="plan"), CALIBRATION, RULES)) == ("ambiguous", "grade-mixed")


def test_pairs_that_lack_calls_never_promote() -> None:
    cut = [one.model_copy(update={"series": tuple(s for s in one.series if s.block != -2)}) for one in against(50.0, 6)]
    assert told(decide(cut, CALIBRATION, RULES)) == ("ambiguous", "incomplete")


def test_a_regression_of_a_protected_case_is_not_outweighed() -> None:
    cases = {"cases": ("main", "side")}
    pairs = against({"main": 20.0, "side": 130.0}, 3, **cases)
    calibration = calibrated(RULES, aa(4, **cases))
    assert told(decide(pairs, calibration, RULES)) == ("reject", "case-regression")
    loose = Rules(weights={"main": 1.0, "side": 1.0}, protected=("main",))
    assert told(decide(pairs, calibration, loose)) == ("promote", "promoted")


def test_a_suspected_regression_holds_the_promotion() -> None:
    cases = {"cases": ("main", "side")}
    calibration = calibrated(RULES, aa(4, bias=0.04, **cases))
    pairs = against({"main": 20.0, "side": 108.0}, 6, bias=0.02, **cases)
    assert told(decide(pairs, calibration, RULES)) == ("ambiguous", "ambiguous")


def test_one_slow_block_does_not_stop_an_honest_candidate() -> None:
    descheduled = against(50.0, 1, slow=lambda arm, block: 10.0 if arm == "candidate" and block == 2 else 1.0)
    pairs = [*descheduled, *against(50.0, 2, seed=3000)]
    assert told(decide(pairs, CALIBRATION, RULES)) == ("promote", "promoted")


def test_a_candidate_with_two_speeds_is_unstable() -> None:
    pairs = against(30.0, 3, slow=lambda arm, block: 2.0 if arm == "candidate" and block % 2 else 1.0)
    assert told(decide(pairs, CALIBRATION, RULES)) == ("reject", "unstable")


def test_a_machine_that_shakes_every_arm_makes_nobody_unstable_and_promotes_nobody() -> None:
    shaken = {"slow": lambda _, block: 2.0 if block % 2 else 1.0}
    pairs = against(30.0, 6, before=1.5, after=1.5, **shaken)
    assert told(decide(pairs, calibrated(RULES, aa(4, before=1.5, after=1.5, **shaken)), RULES)) == (
        "ambiguous",
        "noisy",
    )


def slow_baseline(factor: float, after: float = 1.0, n: int = 6) -> list[object]:
    return against(100.0, n, slow=lambda arm, _: factor if arm == "baseline" else 1.0, after=after)


def test_a_baseline_slow_only_beside_the_candidate_is_sabotage_once_three_pairs_show_it() -> None:
    pairs = slow_baseline(1.5)
    assert told(decide(pairs[:2], CALIBRATION, RULES)) == ("more", "")
    assert told(decide(pairs[:3], CALIBRATION, RULES)) == ("reject", "sabotage")


def test_with_an_incumbent_beside_it_nobody_is_accused_of_the_slow_baseline() -> None:
    arms = {"baseline": 100.0, "incumbent": 100.0, "candidate": 50.0}
    slow = {"slow": lambda arm, _: 1.5 if arm == "baseline" else 1.0}
    pairs = [pair(arms, seed=i, **slow) for i in range(6)]
    assert told(decide(pairs[:5], CALIBRATION, RULES, incumbent="c001")) == ("more", "")
    found = decide(pairs, CALIBRATION, RULES, incumbent="c001")
    assert told(found) == ("ambiguous", "rivals")
    assert set(found.numbers["unused"].values()) == {"rivals"}


def test_one_burst_of_load_is_not_called_sabotage() -> None:
    pairs = [*slow_baseline(1.5, n=1), *against(50.0, 3, seed=3000)]
    assert told(decide(pairs, CALIBRATION, RULES)) == ("promote", "promoted")


def test_bursts_in_half_of_the_pairs_accuse_nobody_and_prove_nothing() -> None:
    pairs = [*slow_baseline(1.5, n=3), *against(100.0, 3, seed=3000)]
    assert told(decide(pairs[2:5], CALIBRATION, RULES)) == ("more", "")
    assert told(decide(pairs[1:], CALIBRATION, RULES)) == ("more", "")
    assert decide(pairs, CALIBRATION, RULES).verdict == "ambiguous"


def test_a_machine_that_stays_slow_has_drifted_and_says_nothing() -> None:
    pairs = slow_baseline(1.5, after=1.5)
    assert told(decide(pairs[:5], CALIBRATION, RULES)) == ("more", "")
    assert told(decide(pairs, CALIBRATION, RULES)) == ("ambiguous", "drift")


@pytest.mark.parametrize("factor", [1.03, 1.06, 1.09])
def test_slowing_the_baseline_below_the_margin_gains_nothing(factor: float) -> None:
    pairs = slow_baseline(factor)
    rulings = [decide(pairs[:n], CALIBRATION, RULES) for n in range(1, 7)]
    assert "promote" not in {one.verdict for one in rulings}
    assert rulings[-1].numbers["unused"] == {}
    assert abs(math.log(rulings[-1].numbers["speedup"])) < 0.02


def observed(value: float) -> object:
    seen = observe(against(50.0, 1)[0], ("main",))
    return type(seen)(**{**seen.__dict__, "base": {"main": value}, "over": {"main": value}})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_never_promote(value: float) -> None:
    good = [observe(one, ("main",)) for one in against(50.0, 6)]
    for seen in (
        [observed(value)] * 3,
        [*good[:3], observed(value)],
        [observed(value)] * 6,
        [*good[:5], observed(value)],
    ):
        assert rule(seen, CALIBRATION, RULES).verdict != "promote"


@pytest.mark.parametrize(
    "ruling",
    [
        decide(against(50.0, 3), CALIBRATION, RULES),
        decide(against(150.0, 1), CALIBRATION, RULES),
        decide(against(100.0, 6), CALIBRATION, RULES),
        decide(against(50.0, 6, grade="plan"), CALIBRATION, RULES),
    ],
)
def test_the_numbers_of_a_ruling_survive_strict_json(ruling: Ruling) -> None:
    assert json.loads(json.dumps(ruling.numbers, allow_nan=False)) == ruling.numbers


def test_a_decision_does_not_depend_on_the_order_of_cases_or_on_when_it_is_made() -> None:
    cases = {"cases": ("zeta", "alpha", "main")}
    calibration = calibrated(RULES, aa(4, **cases))
    turned = calibration.model_copy(update={"median_us": dict(reversed(calibration.median_us.items()))})
    pairs = against({"zeta": 130.0, "alpha": 130.0, "main": 10.0}, 3, **cases)
    found = decide(pairs, calibration, RULES)
    assert told(found) == ("reject", "case-regression")
    assert "['alpha', 'zeta']" in found.detail
    assert decide(pairs, turned, RULES) == found == decide(pairs, calibration, RULES)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.2, 5.0), st.integers(1, 6), st.sampled_from(sorted(CALL)))
def test_a_promotion_implies_that_every_call_was_right(seed: int, factor: float, n: int, why: str) -> None:
    pairs = against(100.0 * factor, n, seed=seed)
    victim = random.Random(seed).randrange(n)
    pairs[victim] = judged_as(pairs[victim], why, block=random.Random(seed).choice([-1, 0, 3]))
    found = decide(pairs, CALIBRATION, RULES)
    assert found.verdict != "promote" or (why == "" and n >= RULES.min_pairs and factor < 1)


def test_the_finalist_holds_when_fresh_pairs_say_so() -> None:
    found = revalidate(against(50.0, 3, seed=9), CALIBRATION, RULES)
    assert told(found) == ("promote", "revalidated")
    assert found.numbers["alpha"] == RULES.alpha  # one look at one candidate


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (against(100.0, 3), "revalidation-failed"),
        (against(50.0, 1), "revalidation-failed"),
        (slow_baseline(1.5, after=1.5, n=3), "revalidation-failed"),
        ([judged_as(one, "wrong", block=-1) for one in against(50.0, 3)], "wrong"),
        (against(140.0, 3), "not-better"),
    ],
)
def test_the_finalist_fails_for_its_own_reason(pairs: list[object], reason: str) -> None:
    assert told(revalidate(pairs, CALIBRATION, RULES)) == ("reject", reason)
