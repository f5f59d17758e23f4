from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore import facts
from replay.fold import fold
from replay.show import show, text
from tests.replay.episodes import played, stored

STATE = fold("e-1", stored(played([50.0, 100.0])))


def test_the_account_is_json_and_says_why() -> None:
    account = json.loads(json.dumps(show(STATE), allow_nan=False))
    assert [(one["candidate"], one["verdict"], one["reason"]) for one in account["candidates"]] == [
        ("c001", "promoted", "promoted"),
        ("c002", "rejected", "slower"),
    ]
    assert account["candidates"][1]["meaning"] == "clearly slower than the incumbent in every pair so far"
    assert account["finished"]["winner"] == "c001"
    assert account["revalidated"][0]["passed"] is True
    assert len(account["baseline"]["pairs"]) == 4
    assert account["candidates"][0]["pairs"][0]["calls"] == 2 * (3 + 18) + 10


def test_the_text_tells_the_same_in_order() -> None:
    assert [line.split()[0] for line in text(STATE).splitlines()] == [
        "episode",
        "bundle",
        "where",
        "baseline",
        "c001",
        "right",
        "main:",
        "hypothesis",
        "c002",
        "clearly",
        "right",
        "main:",
        "hypothesis",
        "final",
        "outcome",
        "the",
    ]
    assert "outcome    winner: c001" in text(STATE)


def test_an_open_episode_can_be_shown() -> None:
    told = played([50.0])
    for n in range(1, len(told)):
        state = fold("e-1", stored(told[:n]))
        assert show(state)["stage"] == state.stage
        assert text(state).startswith(f"episode    e-1 ({state.stage})\n")
        assert "go on with: assay resume e-1" in text(state)


def test_text_of_a_stranger_is_escaped() -> None:
    told = played([50.0])
    nasty = told[6].model_copy(update={"hypothesis": "x\nepisode forged\x1b[2J"})
    assert isinstance(nasty, facts.CandidateProposed)
    said = text(fold("e-1", stored([*told[:6], nasty])))
    assert "\x1b" not in said
    assert not any(line.startswith("episode forged") for line in said.splitlines())


KERNEL = {"name": "k\x1b[2J", "registers": 40, "shared_bytes": 2048, "local_bytes": 16, "num_warps": 4}


@pytest.mark.parametrize(
    ("claim", "lines"),
    [
        ({"ok": True}, []),
        ({"compile": {"state": "not-tried", "why": "x"}}, []),
        (
            {"compile": {"state": "compiled", "arch": 90, "kernels": [KERNEL]}},
            ['kernel "k\\u001b[2J" sm_90: 40 registers, 2048 B shared, 16 B local (spills), 4 warps'],
        ),
        ({"compile": {"state": "refused", "why": "x.is_cuda", "kernels": []}}, ["compiled on the GPU only, x.is_cuda"]),
    ],
)
def test_what_was_compiled_without_a_gpu_is_told_kernel_by_kernel(claim: dict[str, Any], lines: list[str]) -> None:
    told = [
        fact.model_copy(update={"claim": claim}) if isinstance(fact, facts.CandidateBuilt) else fact
        for fact in played([50.0])
    ]
    said = [line.strip() for line in text(fold("e-1", stored(told))).splitlines()]
    assert [line for line in said if line.startswith(("kernel ", "compiled "))] == lines
