"""`works` is a promise: an engine alone, without anything to run in it, runs no candidate."""

from __future__ import annotations

import pytest

from runner.doctor import Finding, works


@pytest.mark.parametrize(
    ("fine", "promised"),
    [
        ((), False),
        (("limits under docker", "limits under bwrap"), False),
        (("guest environment",), False),
        (("limits under bwrap", "image cpu"), False),
        (("limits under bwrap", "guest environment"), True),
        (("limits under docker", "guest environment"), True),
        (("limits under docker", "image cpu"), True),
    ],
)
def test_candidates_can_be_run_with_an_engine_and_an_image_that_it_can_use(
    fine: tuple[str, ...], promised: bool
) -> None:
    names = ("limits under docker", "limits under bwrap", "guest environment", "image cpu")
    assert works([Finding(name, name in fine, "") for name in names]) is promised
