"""The standing best and the history behind it, over all episodes.

A board is one bundle digest, device label, engine and grade of evidence: numbers of different boards are never ranked
together. Only a candidate that its episode revalidated is ranked; by the lower bound of its speed-up, so that a lucky
estimate does not stand above a sure one. Nothing is overwritten: a worse later run is one more row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Literal

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

    @property
    def board(self) -> tuple[str, ...]:
        """What may be ranked together."""
        return (self.operator, self.bundle, self.shape, self.dtype, self.device_label, self.engine, self.grade)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def leaderboard(states: Iterable[State], operator: str | None = None) -> list[Row]:
    """Every promoted candidate, board by board: winners by rank, then the unvalidated, then the withdrawn.

    `operator`: only boards of this operator, or of the bundle whose digest begins with it.
    """
    rows = [row for state in states for row in _rows(state)]
    if operator is not None:
        rows = [row for row in rows if row.operator == operator or _digest_begins(row.bundle, operator)]
    rows.sort(key=lambda row: (row.board, _ORDER[row.status], -row.lower, row.episode, row.candidate))
    return [ranked for _, board in groupby(rows, key=lambda row: row.board) for ranked in _rank(list(board))]


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
    )
