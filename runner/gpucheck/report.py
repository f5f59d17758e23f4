"""The check's results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from runner.gpucheck.check import Result

COLUMNS = ("row", "expected", "seen", "held", "wall s", "left MiB", "clean s", "good s", "Xid")


def table(results: list[Result]) -> str:
    """One line per row. `clean s` and `good s` count from the end of the program's container; `-` where nothing was measured."""
    lines = [COLUMNS, *map(_cells, results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    held = sum(result.ok for result in results)
    return "\n".join([*drawn, "", f"{held} of {len(results)} rows hold"]) + "\n"


def document(results: list[Result], environment: dict[str, Any]) -> str:
    """The same with all evidence."""
    rows = [{"ok": result.ok, **asdict(result)} for result in results]
    return json.dumps({"environment": environment, "rows": rows}, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.name,
        result.expected,
        result.status,
        "yes" if result.ok else "NO",
        _number(result.wall_s, 1),
        _number(result.peak_mib, 0),
        _number(result.clean_s, 2),
        _number(result.good_s, 1),
        _xids(result),
    )


def _xids(result: Result) -> str:
    seen, sources = result.xids.get("seen"), result.xids.get("sources")
    if isinstance(seen, list) and seen:
        return " ".join(dict.fromkeys(str(xid["xid"]) for xid in seen))
    readable = isinstance(sources, dict) and any(str(state).startswith("read") for state in sources.values())
    return "none" if readable else "not readable"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
