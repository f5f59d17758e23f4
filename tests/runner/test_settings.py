"""Layers of settings: defaults < the operator's contract < budget.json < flags; then frozen and recorded."""

from __future__ import annotations

import pytest

from ops.decide import Rules
from runner.exits import UsageError
from runner.settings import Settings, resolve, strategy
from tests.runner.stories import bundle


def test_without_any_layer_the_defaults_hold_and_the_bundle_s_cases_enter_the_rules() -> None:
    found = resolve(bundle(), {}, strategy="mock")
    rules = Rules(tries=64, weights={"main": 1.0, "odd": 0.01}, protected=("main",))
    assert found == Settings(strategy="mock", rules=rules)


def test_a_flag_beats_the_budget_which_beats_the_contract() -> None:
    budget = {"min_speedup": 1.2, "max_rounds": 3, "max_candidate_seconds": 9.0, "benchmark_repetitions": 20}
    contract = {"min_speedup": 1.05, "max_cv": 0.2}
    found = resolve(bundle(budget_json=budget), {"max_candidates": 5, "seed": None}, contract=contract, strategy="mock")
    assert (found.rules.min_speedup, found.rules.max_cv, found.max_candidates) == (1.2, 0.2, 5)
    assert (found.provider_timeout_s, found.calls * found.blocks >= 20, found.seed) == (9.0, True, 0)
    assert resolve(bundle(budget_json=budget), {}, strategy="mock").max_candidates == 6
    flags = {"min_speedup": 1.3}
    assert resolve(bundle(budget_json=budget), flags, contract=contract, strategy="mock").rules.min_speedup == 1.3


def test_what_is_recorded_is_what_is_read_back() -> None:
    found = resolve(bundle(), {"max_candidates": 7, "seed": 3, "min_speedup": 1.5}, strategy="mock")
    assert Settings.of(found.record()) == found
    assert Rules.of(found.record()) == found.rules


def test_alpha_is_shared_among_no_more_candidates_than_can_be_tried() -> None:
    assert resolve(bundle(), {}, strategy="mock", tries=8).rules.tries == 8
    assert resolve(bundle(), {"max_candidates": 3}, strategy="mock", tries=8).rules.tries == 3


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"max_candidates": 0}, "max-candidates: should be greater than or equal to 1 (given: 0)"),
        ({"max_candidates": 1025}, "max-candidates: should be less than or equal to 1024 (given: 1025)"),
        ({"seed": -1}, "seed: should be greater than or equal to 0 (given: -1)"),
        ({"min_speedup": float("nan")}, "min-speedup: should be a finite number (given: nan)"),
        ({"max_total_seconds": 0.0}, "max-total-seconds: should be greater than 0 (given: 0.0)"),
        ({"blocks": 2}, "blocks: should be greater than or equal to 3 (given: 2)"),
        ({"nonsense": 2}, "nonsense: Extra inputs are not permitted (given: 2)"),
    ],
)
def test_a_setting_out_of_range_is_one_line_that_names_it(flags: dict[str, float], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(bundle(), flags, strategy="mock")
    assert str(caught.value) == line


def test_strategies_of_later_say_so_and_unknown_ones_name_the_known() -> None:
    with pytest.raises(UsageError, match="ucb comes later; there is grid, best_of_n"):
        strategy("ucb", ("grid", "best_of_n"))
    with pytest.raises(UsageError, match="unknown strategy 'gird'"):
        strategy("gird", ("grid", "best_of_n"))
    assert strategy("grid", ("grid",)) == "grid"
