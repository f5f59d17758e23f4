from __future__ import annotations

import pytest

from ops.decide import Rules, RulesError


def test_rules_survive_the_settings_of_an_episode() -> None:
    rules = Rules(min_speedup=1.2, weights={"a": 1.0, "b": 2.0}, protected=("a",))
    assert Rules.of({"strategy": "grid", "rules": rules.settings()}) == rules
    assert Rules.of({}) == Rules()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rules": {"min_sped": 1.1}}, "rules: min_sped: Extra inputs are not permitted"),
        ({"rules": {"alpha": 0.9}}, "rules: alpha: Input should be less than 0.5"),
        ({"rules": {"min_speedup": float("nan")}}, "rules: min_speedup: Input should be a finite number"),
        ({"rules": {"min_pairs": 1}}, "rules: min_pairs: Input should be greater than or equal to 2"),
        ({"rules": {"min_pairs": 7}}, "rules: value: Value error, min_pairs 7 is more than max_pairs 6"),
        (
            {"rules": {"weights": {"a": 1}, "protected": ["b"]}},
            "rules: value: Value error, protected case without a weight: b",
        ),
        ({"min_speedup": 1.1}, "settings: min_speedup belongs under the key rules"),
    ],
)
def test_a_bad_threshold_gets_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(RulesError) as refused:
        Rules.of(settings)
    assert str(refused.value) == said


def test_alpha_is_shared_out_over_candidates_and_looks() -> None:
    assert Rules(alpha=0.05, tries=10, min_pairs=3, max_pairs=6).promotion_alpha == pytest.approx(0.05 / 40)
