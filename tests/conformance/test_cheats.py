"""Every cheat through the whole program on a real sandbox: one episode, the verdicts read back from its log.

The cheats are proposed first, so that each is compared with the baseline that it is built on; then its honest twin, which must be
right on every call and gain nothing, and last an honest kernel that is really faster, which must be promoted by the same path (a
judge that rejects everything would pass the rest).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cheats
import program

from ops import registry

SOURCES = {**cheats.CHEATS, "honest-twin": cheats.HONEST_TWIN, "honest-faster": cheats.FASTER}

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module", params=["docker", "bwrap"])
def episode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """See `program.episode`."""
    bundle = registry.get("rmsnorm").bundle(cheats.SHAPE, "fp32", "cpu")
    folder = tmp_path_factory.mktemp(request.param)
    return program.episode(folder, bundle, SOURCES, request.param, "--max-pairs", "4", "--max-cv", "0.5")


@pytest.mark.parametrize("name", cheats.CHEATS)
def test_a_cheat_is_not_promoted_and_its_interval_shows_no_gain(episode: Mapping[str, Any], name: str) -> None:
    found = episode[name]
    assert found["verdict"] in ("rejected", "ambiguous")
    if cheats.EXPECTED[name]:
        assert found["reason"] in cheats.EXPECTED[name], found
    else:
        assert found["verified"]["right"] == found["verified"]["calls"]
        assert (found["numbers"]["lower"] or 0.0) <= 1.0, found["numbers"]


def test_the_honest_twin_is_right_on_every_call_and_gains_nothing(episode: Mapping[str, Any]) -> None:
    found = episode["honest-twin"]
    assert found["verdict"] in ("rejected", "ambiguous")
    assert found["verified"]["right"] == found["verified"]["calls"]
    assert found["reason"] in (
        "ambiguous",
        "not-better",
        "slower",
        "below-min-speedup",
        "unstable",
        "noisy",
        "drift",
    ), found
    assert (found["numbers"]["lower"] or 0.0) <= 1.0, found["numbers"]


def test_an_honest_kernel_that_is_faster_is_promoted_and_wins(episode: Mapping[str, Any]) -> None:
    found = episode["honest-faster"]
    assert found["verdict"] == "promoted", found
    assert episode[""]["winner_experiment_id"] == found["candidate"]


def test_the_replay_of_the_cheats_episode_agrees(episode: Mapping[str, Any]) -> None:
    assert episode["replay"]["agree"] is True
