from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.decide.stats import Interval, deviation, interval, observe, prediction, robust_cv, student, weighted
from tests.decide.synthetic import against, judged_as, pair


def test_one_value_has_an_infinite_interval() -> None:
    assert interval([0.7], 0.05) == Interval(0.7, math.inf)
    assert interval([], 0.05).half == math.inf
    assert prediction([0.7], 0.05) == math.inf


def test_two_values_use_one_degree_of_freedom() -> None:
    found = interval([0.0, 2.0], 0.05)
    assert found.mean == 1.0
    assert found.half == pytest.approx(6.313751515 * math.sqrt(2) / math.sqrt(2))


def test_the_t_quantile_is_the_published_one() -> None:
    assert student(0.025, 3) == pytest.approx(4.302652730)
    assert student(0.05, 6) == pytest.approx(2.015048373)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6), st.floats(0.001, 0.2), st.floats(0, 3))
def test_widening_only_widens(values: list[float], alpha: float, by: float) -> None:
    narrow = interval(values, alpha)
    wide = narrow.widened(by)
    assert wide.low <= narrow.low <= narrow.high <= wide.high


def test_the_deviation_is_the_sample_one() -> None:
    assert deviation([1.0, 2.0, 3.0, 4.0]) == pytest.approx(1.2909944487)


def test_weights_are_normalised_over_the_cases_present() -> None:
    assert weighted({"a": 1.0, "b": 4.0}, {"a": 1.0, "b": 2.0, "c": 9.0}) == 3.0


def test_one_descheduled_block_does_not_move_the_robust_variation_but_half_of_them_do() -> None:
    assert robust_cv([100.0, 101.0, 99.0, 100.0, 100.5, 1000.0]) < 0.01
    assert robust_cv([100.0, 100.0, 100.0, 200.0, 200.0, 200.0]) > 0.4


def test_two_blocks_say_nothing_of_variation() -> None:
    assert robust_cv([100.0, 100.0]) == math.inf


def test_a_pair_is_one_log_ratio_per_case() -> None:
    found = observe(pair({"baseline": 100.0, "candidate": 50.0}, noise=0, bias=0), ("main",))
    assert found.base == {"main": pytest.approx(math.log(2))}
    assert found.over == found.base
    assert (found.problem, found.wrong) == ("", ())
    assert found.us == {"main": 50.0}


def test_a_machine_that_slows_every_arm_of_a_block_changes_no_ratio() -> None:
    burst = pair(
        {"baseline": 100.0, "candidate": 50.0}, noise=0, bias=0, slow=lambda _, block: 7.0 if block < 4 else 1.0
    )
    assert observe(burst, ("main",)).base == {"main": pytest.approx(math.log(2))}


def test_the_incumbent_is_compared_with_its_own_arm() -> None:
    both = pair({"baseline": 100.0, "incumbent": 80.0, "candidate": 40.0}, noise=0, bias=0)
    found = observe(both, ("main",), incumbent="incumbent")
    assert found.base == {"main": pytest.approx(math.log(2.5))}
    assert found.over == {"main": pytest.approx(math.log(2))}


@pytest.mark.parametrize(("arm", "block"), [("baseline", -2), ("baseline", -3), ("baseline", 3), ("candidate", 3)])
def test_a_pair_without_its_calls_is_no_evidence(arm: str, block: int) -> None:
    whole = against(50.0, 1)[0]
    less = tuple(one for one in whole.series if (one.arm, one.block) != (arm, block))
    assert observe(whole.model_copy(update={"series": less}), ("main",)).problem == "incomplete"


def test_a_time_of_zero_is_no_evidence() -> None:
    assert observe(pair({"baseline": 100.0, "candidate": 0.0}), ("main",)).problem == "incomplete"


def test_a_call_without_a_judgement_is_not_right() -> None:
    whole = against(50.0, 1)[0]
    bare = tuple(one.model_copy(update={"why": one.why[:-1]}) for one in whole.series)
    assert observe(whole.model_copy(update={"series": bare}), ("main",)).problem == "baseline-wrong"


def test_a_hidden_family_that_the_baseline_gets_wrong_is_held_against_nobody() -> None:
    whole = against(50.0, 1)[0]
    hidden = [
        one.model_copy(update={"family": "huge", "block": -1, "why": ("wrong",) * len(one.ns)})
        for one in whole.series
        if one.block == 0
    ]
    both = whole.model_copy(update={"series": (*whole.series, *hidden)})
    assert observe(both, ("main",)).wrong == ()
    only = whole.model_copy(update={"series": (*whole.series, *(one for one in hidden if one.arm == "candidate"))})
    assert [call.family for call in observe(only, ("main",)).wrong] == ["huge"] * 3


def test_a_wrong_baseline_makes_the_pair_no_evidence() -> None:
    assert observe(judged_as(against(50.0, 1)[0], "wrong", arm="baseline"), ("main",)).problem == "baseline-wrong"
