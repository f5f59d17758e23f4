"""The public fake: reads wishes from a source, says that it is a fake, and answers the same when asked the same."""

from __future__ import annotations

import pytest

from runner.fake import FakeLab, source
from runner.lab import Arm, PairPlan
from sandbox.api import SandboxFault
from tests.runner.stories import bundle


def plan(text: bytes, unit: str = "u-v1", families: tuple[str, ...] = ()) -> PairPlan:
    return PairPlan(unit, (Arm("baseline", source(100.0)), Arm("candidate", text)), 0, families=families)


def test_a_pair_has_the_shape_of_a_measured_one_and_is_marked_as_a_fake() -> None:
    pair = FakeLab().pair(bundle(), plan(source(50.0)))
    found = {(one.arm, one.block) for one in pair.series}
    blocks = {(arm, block) for arm in ("baseline", "candidate") for block in (-1, 0, 1, 2, 3, 4, 5)}
    assert found == blocks | {("baseline", -2), ("baseline", -3)}
    assert pair.device == {"fake": True}


def test_times_are_those_wished_for_within_the_noise_and_the_same_for_every_attempt() -> None:
    pair = FakeLab().pair(bundle(), plan(source(50.0)))
    timed = [ns / 1000 for one in pair.series if one.arm == "candidate" for ns in one.ns]
    assert timed == pytest.approx([50.0] * len(timed), rel=0.01)
    assert pair.series == FakeLab().pair(bundle(), plan(source(50.0), "u-v7")).series
    assert pair.series != FakeLab().pair(bundle(), plan(source(50.0), "w-v1")).series


@pytest.mark.parametrize(
    ("behaviour", "why", "last"), [("wrong", "wrong", -1), ("crash", "guest-died", -1), ("wrong-later", "wrong", -3)]
)
def test_a_wrong_newcomer_stops_the_pair_where_a_real_one_would(behaviour: str, why: str, last: int) -> None:
    pair = FakeLab().pair(bundle(), plan(source(50.0, behaviour)))
    assert {reason for one in pair.series if one.arm == "candidate" for reason in one.why} - {""} == {why}
    assert pair.series[-1].block == last


def test_hidden_families_are_checked_only_where_the_plan_asks() -> None:
    text = source(50.0, "wrong-hidden")
    assert {one.family for one in FakeLab().pair(bundle(), plan(text)).series} == {""}
    asked = FakeLab().pair(bundle(), plan(text, families=("*",)))
    assert {why for one in asked.series if one.family and one.arm == "candidate" for why in one.why} == {"wrong"}


def test_faults_come_first_and_then_stop() -> None:
    lab = FakeLab(faults=1)
    with pytest.raises(SandboxFault):
        lab.build(bundle(), source(1.0), "u")
    assert lab.build(bundle(), source(1.0), "u").ok
