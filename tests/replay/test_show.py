from __future__ import annotations

import json

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
