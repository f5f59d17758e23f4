from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ops.decide import reasons

SOURCES = [Path(reasons.__file__).parent / name for name in ("judge.py", "calibrate.py", "stats.py")]


def used(tree: ast.AST) -> set[str]:
    """String literals that stand where a reason does: second argument of a ruling, `reason=`, `problem=`, `_unusable`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("reason", "problem"):
            found |= {leaf.value for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)}
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("Ruling", "self._say", "_unusable")
            and len(node.args) > 1
        ):
            found |= {leaf.value for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Constant)}
    return {one for one in found if isinstance(one, str) and one}


def test_every_reason_that_the_code_gives_is_in_the_vocabulary() -> None:
    found = set().union(*(used(ast.parse(path.read_text())) for path in SOURCES))
    assert {"sabotage", "slower", "baseline-unstable", "drift"} <= found
    assert found - set(reasons.REASONS) == set()


@pytest.mark.parametrize("vocabulary", [reasons.CALL, reasons.CANDIDATE, reasons.EPISODE])
def test_no_two_codes_of_a_vocabulary_mean_the_same(vocabulary: dict[str, str]) -> None:
    assert len(set(vocabulary.values())) == len(vocabulary)


@pytest.mark.parametrize("why", [why for why in reasons.CALL if why] + ["something new"])
def test_every_wrong_call_maps_to_a_reason_of_a_candidate(why: str) -> None:
    assert reasons.of_call(why, {}) in reasons.CANDIDATE


def test_what_the_sandbox_saw_names_the_cause_of_a_lost_guest() -> None:
    assert reasons.of_call("guest-died", {"status": "oom"}) == "out-of-memory"
    assert reasons.of_call("guest-died", {"status": "output-limit"}) == "output-limit"
    assert reasons.of_call("guest-died", {"status": "exited"}) == "crashed"
    assert reasons.of_call("wrong", {"status": "oom"}) == "wrong"


def test_the_vocabulary_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        reasons.REASONS["fine"] = "it was fine"  # type: ignore[index]
