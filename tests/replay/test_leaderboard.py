from __future__ import annotations

from typing import Any

from replay.fold import State, fold
from replay.leaderboard import leaderboard
from tests.replay.episodes import digest, played, stored


def episode(name: str, speeds: list[float], cut: str = "", **keys: Any) -> State:
    told = played(speeds, **keys)
    end = [fact.kind for fact in told].index(cut) if cut else len(told)
    return fold(name, stored(told[:end], stream=name))


GOOD = episode("good", [50.0])
BETTER = episode("better", [80.0, 25.0])
FALLEN = episode("fallen", [40.0], final=3.0)
OPEN = episode("open", [10.0], cut="finalist.measured")


def brief(states: list[State], operator: str | None = None) -> list[tuple[object, ...]]:
    return [(row.rank, row.episode, row.candidate, row.status) for row in leaderboard(states, operator)]


def test_winners_are_ranked_and_the_rest_stand_below_without_a_rank() -> None:
    assert brief([OPEN, FALLEN, GOOD, BETTER]) == [
        (1, "better", "c002", "winner"),
        (2, "good", "c001", "winner"),
        (None, "open", "c001", "unvalidated"),
        (None, "better", "c001", "unvalidated"),
        (None, "fallen", "c001", "withdrawn"),
    ]


def test_a_worse_later_run_is_one_more_row_and_replaces_nothing() -> None:
    assert brief([BETTER, GOOD])[0] == brief([GOOD, BETTER])[0] == (1, "better", "c002", "winner")


def test_other_bundles_devices_and_engines_have_boards_of_their_own() -> None:
    others = [
        episode("a", [60.0], bundle=digest("another")),
        episode("b", [60.0], device_label="NVIDIA H200"),
        episode("c", [60.0], engine="bwrap"),
        episode("d", [60.0], dtype="fp16"),
        episode("e", [60.0], shape={"B": 2, "D": 64}),
    ]
    assert {row[:2] for row in brief([GOOD, *others])} == {(1, name) for name in ("good", *"abcde")}


def test_a_row_carries_the_numbers_of_the_revalidation() -> None:
    row = leaderboard([GOOD])[0]
    assert (row.speedup, row.lower) == (GOOD.finished.speedup, GOOD.finished.lower)
    assert (row.grade, row.shape, row.source) == ("bracket", "B=1,D=64", digest("source 1"))
    assert 49 < row.median_us < 51


def test_a_board_is_chosen_by_operator_or_by_bundle() -> None:
    own = episode("own", [60.0], operator=None, bundle=digest("own"))
    assert [row[1] for row in brief([GOOD, own], "rmsnorm")] == ["good"]
    assert [row[1] for row in brief([GOOD, own], digest("own")[7:19])] == ["own"]
    assert brief([GOOD, own], "matmul") == []


def test_who_was_never_promoted_is_on_no_board() -> None:
    assert brief([episode("none", [100.0, 150.0])]) == []
