"""The same episode through Docker and through bubblewrap: the same verdicts, for the same reasons.

Its candidates are far apart (at least 2x) or wrong beyond doubt: a candidate near the noise may end either way on either engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cheats
import program

from ops import registry

pytestmark = pytest.mark.conformance

SLOW = registry.get("rmsnorm").render("one_row", {"BLOCK_SIZE": 64, "num_warps": 1, "num_stages": 2}).decode()
SOURCES = {
    "slower": SLOW,
    "wrong": cheats.HONEST.replace("+ eps)", "+ 2.0 + eps)"),
    "no-entry": cheats.HONEST.replace("def rmsnorm(", "def another("),
    "raises": cheats.HONEST + "\ndef rmsnorm(x, weight):\n    raise ValueError('no')\n",
    "syntax": cheats.HONEST + "\ndef (:\n",
    "same": "# another comment\n" + cheats.HONEST,
    "faster": cheats.FASTER,
}
EXPECTED = {
    "slower": ("rejected", "slower"),
    "wrong": ("rejected", "wrong"),
    "no-entry": ("rejected", "no-entry"),
    "raises": ("rejected", "crashed"),
    "syntax": ("rejected", "syntax"),
    "same": ("rejected", "duplicate"),
    "faster": ("promoted", "promoted"),
}


@pytest.mark.parametrize("engine", ["docker", "bwrap"])
def test_both_engines_give_the_same_verdicts(engine: str, tmp_path: Path) -> None:
    bundle = registry.get("rmsnorm").bundle(cheats.SHAPE, "fp32", "cpu")
    found = program.episode(tmp_path, bundle, SOURCES, engine, "--aa-pairs", "5", "--max-cv", "0.5")
    assert {name: (found[name]["verdict"], found[name]["reason"]) for name in SOURCES} == EXPECTED
    assert found[""]["success"] is True
    assert found[""]["winner_experiment_id"] == found["faster"]["candidate"]
    assert found["replay"]["agree"] is True
