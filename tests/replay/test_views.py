from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from replay import views
from replay.fold import State, fold
from tests.replay.episodes import played, stored

STATES = [
    fold("e-1", stored(played([50.0, 100.0]), "e-1")),
    fold("e-2", stored(played([100.0]), "e-2")),
]


def ask(home: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(home / views.FILE)) as database:
        return database.execute(question).fetchall()


def test_the_tables_answer_plain_questions(tmp_path: Path) -> None:
    assert views.rebuild(STATES, tmp_path) == tmp_path / "views.sqlite"
    assert ask(tmp_path, "select episode, outcome, winner, proposals from episodes order by 1") == [
        ("e-1", "winner", "c001", 2),
        ("e-2", "no-winner", None, 1),
    ]
    assert ask(tmp_path, "select episode, candidate, verdict, reason from candidates order by 1, 2") == [
        ("e-1", "c001", "promote", "promoted"),
        ("e-1", "c002", "reject", "slower"),
        ("e-2", "c001", "ambiguous", "ambiguous"),
    ]
    assert ask(tmp_path, "select rank, episode, candidate, status from leaderboard") == [(1, "e-1", "c001", "winner")]
    assert ask(
        tmp_path, "select count(*), sum(wrong) from measurements where phase = 'verify' and subject = 'c001'"
    ) == [(2 * 3 + 2 * 6, 0)]


def test_building_again_gives_the_same_and_leaves_nothing_beside(tmp_path: Path) -> None:
    first = views.rebuild(STATES, tmp_path).read_bytes()
    assert views.rebuild(STATES, tmp_path).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["views.sqlite"]


def test_an_error_leaves_the_old_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views.rebuild(STATES, tmp_path)

    def fail(states: list[State]) -> None:
        raise RuntimeError("half way")

    monkeypatch.setattr(views, "leaderboard", fail)
    with pytest.raises(RuntimeError, match="half way"):
        views.rebuild([], tmp_path)
    assert ask(tmp_path, "select count(*) from episodes") == [(2,)]
    assert [path.name for path in tmp_path.iterdir()] == ["views.sqlite"]


def test_an_empty_home_has_empty_tables(tmp_path: Path) -> None:
    views.rebuild([], tmp_path)
    assert ask(tmp_path, "select count(*) from leaderboard") == [(0,)]
