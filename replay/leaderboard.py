"""The standing best and the history behind it, over all episodes.

A board is one bundle digest, device label, engine and grade of evidence: numbers of different boards are never ranked
together. Only a candidate that its episode revalidated is ranked; by the lower bound of its speed-up, so that a lucky
estimate does not stand above a sure one. Nothing is overwritten: a worse later run is one more row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import PurePath
from typing import Any, Literal

from eventstore.facts import EpisodeStarted
from replay.fold import CandidateState, State
from replay.livelog import shape

Status = Literal["winner", "unvalidated", "withdrawn"]
_ORDER: dict[Status, int] = {"winner": 0, "unvalidated": 1, "withdrawn": 2}


@dataclass(frozen=True)
class Row:
    """One promoted candidate. `rank` counts from 1 among the winners of a board; None for all others."""

    rank: int | None
    operator: str
    """Registered operator; empty for a bundle of one's own."""
    bundle: str
    shape: str
    dtype: str
    device_label: str
    engine: str
    grade: str
    candidate: str
    status: Status
    """`winner`: it held in the revalidation. `withdrawn`: it did not. `unvalidated`: it was never revalidated."""
    speedup: float
    """Over the baseline, weighted geometric mean over cases."""
    lower: float
    median_us: float | None
    """Weighted geometric mean over cases of the median time, microseconds."""
    episode: str
    source: str
    name: str = ""
    """The operator's name, or that of the folder a bundle was read from. For the eye: boards go by the digest."""
    cases: str = ""
    """The bundle's cases that the numbers are over, joined by commas."""

    @property
    def board(self) -> tuple[str, ...]:
        """What may be ranked together."""
        return (self.operator, self.bundle, self.shape, self.dtype, self.device_label, self.engine, self.grade)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def leaderboard(states: Iterable[State], operator: str | None = None) -> list[Row]:
    """Every promoted candidate, board by board: winners by rank, then the unvalidated, then the withdrawn.

    `operator`: only boards that it names, see `named`.
    """
    rows = [row for state in states if operator is None or named(state, operator) for row in _rows(state)]
    rows.sort(key=lambda row: (row.board, _ORDER[row.status], -row.lower, row.episode, row.candidate))
    return [ranked for _, board in groupby(rows, key=lambda row: row.board) for ranked in _rank(list(board))]


def named(state: State, text: str) -> bool:
    """Whether `text` is the episode's operator, its bundle's folder, or the beginning of its bundle's digest."""
    started = state.started
    return started is not None and (text == bundle_name(started) or _digest_begins(started.bundle, text))


def bundle_name(started: EpisodeStarted) -> str:
    """What people call the bundle: its operator, else the folder it was read from; "" where neither is known."""
    if started.operator:
        return started.operator
    return PurePath(started.live_kernel).parent.name if started.live_kernel else ""


def _digest_begins(digest: str, text: str) -> bool:
    return bool(text) and (digest.startswith(text) or digest.removeprefix("sha256:").startswith(text))


def _rank(board: Sequence[Row]) -> list[Row]:
    return [replace(row, rank=place) if row.status == "winner" else row for place, row in enumerate(board, start=1)]


def _rows(state: State) -> list[Row]:
    return [_row(state, one) for one in state.candidates.values() if one.promoted]


def _row(state: State, one: CandidateState) -> Row:
    started, promoted, judged = state.started, one.promoted, one.judged
    assert started is not None
    assert promoted is not None
    assert judged is not None
    again = state.revalidated.get(one.id)
    won = again is not None and again.passed
    numbers = again.numbers if again is not None and won else judged.numbers
    return Row(
        rank=None,
        operator=started.operator or "",
        bundle=started.bundle,
        shape=shape(started.shape),
        dtype=started.dtype or "",
        device_label=started.device_label,
        engine=started.engine,
        grade=str(judged.numbers.get("grade", "")),
        candidate=one.id,
        status="winner" if won else "withdrawn" if again else "unvalidated",
        speedup=numbers.get("speedup", promoted.speedup) if won else promoted.speedup,
        lower=numbers.get("lower", promoted.lower) if won else promoted.lower,
        median_us=numbers.get("median_us"),
        episode=state.episode,
        source=one.proposed.source,
        name=bundle_name(started),
        cases=",".join(numbers.get("cases", {})),
    )
