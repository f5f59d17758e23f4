"""Tables for people: aligned columns on a terminal. JSON is for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replay import livelog
from replay.leaderboard import Row


def table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    """Aligned columns; the width of a terminal is no reason to cut a digest."""
    cells = [tuple(head), *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells
    )


def board(row: Row) -> tuple[str, ...]:
    """One line of a leaderboard."""
    bundle = row.operator or " ".join(filter(None, (row.name, livelog.short(row.bundle))))
    what = " ".join(filter(None, (bundle, row.shape, row.dtype, f"[{row.cases}]" if row.cases else "")))
    return (
        str(row.rank or "-"),
        row.status,
        what,
        f"{row.device_label}, {row.engine}",
        row.grade,
        livelog.times(row.speedup),
        livelog.times(row.lower),
        f"{row.median_us:.1f}" if row.median_us is not None else "-",
        f"{row.episode} {row.candidate}",
    )
