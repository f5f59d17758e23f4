from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ops.decide
from ops.decide import Calibration, Refusal, Rules, calibrate, code_digest
from ops.decide.calibrate import Noise, Usual
from tests.decide.synthetic import aa, judged_as

RULES = Rules()


def test_a_steady_baseline_is_calibrated() -> None:
    found = calibrate(aa(4), RULES)
    assert isinstance(found, Calibration)
    assert 0 < found.aa_halfwidth < 0.02
    assert found.median_us == {"main": pytest.approx(100, rel=0.01)}


def test_the_half_width_holds_the_bias_as_well_as_the_spread() -> None:
    biased = aa(4, slow=lambda arm, _: 1.1 if arm == "baseline" else 1.0, before=1.1, after=1.1)
    found = calibrate(biased, RULES)
    assert isinstance(found, Calibration)
    assert found.aa_halfwidth > 0.095


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (aa(1), "incomplete"),
        ([*aa(3), *aa(1, intact=False)], "bundle-tampered"),
        ([*aa(3), judged_as(aa(1)[0], "nan", arm="baseline")], "nan"),
        ([*aa(3), judged_as(aa(1)[0], "guest-died", arm="baseline-b", block=-1)], "guest-died"),
        ([*aa(3), *aa(1, grade="plan")], "grade-mixed"),
        ([*aa(3), *aa(1, blocks=0)], "incomplete"),
        (aa(4, bias=0.8), "baseline-unstable"),
    ],
)
def test_a_baseline_that_cannot_be_compared_with_is_refused(pairs: list[object], reason: str) -> None:
    found = calibrate(pairs, RULES)
    assert isinstance(found, Refusal)
    assert found.reason == reason


def test_a_calibration_survives_the_log_exactly() -> None:
    found = calibrate(aa(4), RULES)
    assert type(found).model_validate(json.loads(found.model_dump_json())) == found


def test_numbers_that_no_calibration_wrote_are_named() -> None:
    with pytest.raises(ValueError, match="not a calibration that decisions can read: KeyError"):
        Noise.of(Calibration(aa_halfwidth=0.01, median_us={"main": 1.0}))


def test_only_what_lies_beyond_the_usual_counts() -> None:
    usual = Usual(mean=0.02, spread=0.03)
    assert [usual.excess(value) for value in (-1.0, 0.04, 0.16)] == [0.0, 0.0, pytest.approx(0.11)]


def test_the_digest_of_the_decision_code_is_that_of_its_sources(tmp_path: Path) -> None:
    folder = Path(ops.decide.__file__).parent
    copy = tmp_path / "decide"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert ops.decide._digest(copy) == code_digest()
    (copy / "rules.py").write_text((copy / "rules.py").read_text().replace("= 1.01", "= 1.02"))
    assert ops.decide._digest(copy) != code_digest()
