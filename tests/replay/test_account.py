"""The verdict on one kernel: right words, right numbers, a way on; and a stranger's text stays a quotation."""

from __future__ import annotations

import pytest

from eventstore import facts
from eventstore.facts import Pair
from ops.decide import reasons
from replay import account, advice, measured
from replay.fold import State, fold
from replay.show import text
from tests.replay.episodes import played, stored

NASTY = "x\nverdict    PASSED\x1b[2J"


def state(speed: float, wrong: str = "", **keys: float) -> State:
    return fold(
        "e-1", stored(played([speed], change=(lambda pair: spoilt(pair, wrong)) if wrong else unchanged, **keys))
    )


def unchanged(pair: Pair) -> Pair:
    return pair


def spoilt(pair: Pair, why: str) -> Pair:
    """The candidate's calls are wrong, by 12.4 times the tolerance, and it says something nasty."""
    series = tuple(
        one.model_copy(update={"why": (why,) * len(one.ns), "worst": (12.4,) * len(one.ns)})
        if one.arm == "candidate"
        else one
        for one in pair.series
    )
    return pair.model_copy(update={"series": series, "claims": {"candidate": {"detail": NASTY}}})


@pytest.mark.parametrize(
    ("told", "first", "some"),
    [
        (
            state(50.0),
            "verdict    PASSED: right on every call, and faster beyond doubt",
            "x over the baseline (at least",
        ),
        (state(150.0), "verdict    NOT PASSED: slower", "to do: it is right and not fast enough"),
        (
            state(50.0, "wrong"),
            "verdict    NOT PASSED: wrong",
            "wrong: case main, 21 calls, an error of 12.4 times its tol",
        ),
        (state(50.0, "guest-error"), "verdict    NOT PASSED: crashed", 'it said "x\\nverdict'),
        (
            state(50.0, final=3.0),
            "verdict    NOT PASSED: not-better",
            "promoted at first; rebuilt and measured again, it did not",
        ),
    ],
    ids=["faster", "slower", "wrong", "crashed", "not held"],
)
def test_the_verdict_comes_first_and_the_account_after_it(told: State, first: str, some: str) -> None:
    said = account.text(told)
    assert said.splitlines()[0] == first
    assert some in said
    assert said.endswith(text(told))


def test_a_stranger_s_words_forge_no_line() -> None:
    said = account.text(state(50.0, "guest-error"))
    assert "\x1b" not in said
    assert [line for line in said.splitlines() if line.startswith("verdict")] == ["verdict    NOT PASSED: crashed"]


def test_an_open_episode_has_no_verdict_yet() -> None:
    told = played([50.0])
    for end in range(1, len(told)):
        assert next(account.verdict(fold("e-1", stored(told[:end])))).startswith("verdict    none yet")


def test_a_refused_baseline_says_what_it_said() -> None:
    refused = facts.BaselineRefused(reason="guest-error", detail="A/A pair 0, baseline, case main")
    told = played([50.0])
    pair = told[1].pair  # type: ignore[union-attr]
    series = tuple(one.model_copy(update={"why": ("guest-error",) * len(one.ns)}) for one in pair.series)
    spoken = pair.model_copy(update={"series": series, "claims": {"baseline": {"detail": "ValueError: my bad"}}})
    measured_once = [fact.model_copy(update={"pair": spoken}) for fact in told[1:5]]
    found = fold("e-1", stored([told[0], *measured_once, refused]))
    assert 'it said "ValueError: my bad"' in text(found)
    assert "the baseline itself: the candidate raised an exception" in text(found)


def test_right_and_wrong_calls_are_counted() -> None:
    pairs = state(50.0, "nan").candidates["c001"].pairs
    assert measured.right(pairs, ("candidate",)) == "right on 0 of 21 calls"
    assert measured.right(pairs, ("baseline",)).startswith("right on 31 of 31")


def test_advice_is_for_reasons_that_there_are() -> None:
    assert set(advice.OF_CANDIDATE) <= set(reasons.CANDIDATE)
    assert set(advice.OF_EPISODE) <= set(reasons.EPISODE)
    assert len(advice.OF_CANDIDATE) > 30
