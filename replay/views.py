"""`views.sqlite`: the log as plain tables, for datasette and SQL. Derived and disposable: it can always be rebuilt.

It is built beside the old one and renamed over it, so a reader sees the old tables or the new ones, never half.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from sqlite_utils import Database

from eventstore.facts import Pair
from replay.fold import State
from replay.leaderboard import Row, leaderboard
from replay.livelog import shape

FILE = "views.sqlite"

_EPISODES = {
    "episode": str,
    "stage": str,
    "outcome": str,
    "winner": str,
    "speedup": float,
    "lower": float,
    "stopping_reason": str,
    "operator": str,
    "bundle": str,
    "shape": str,
    "dtype": str,
    "device_label": str,
    "engine": str,
    "aa_halfwidth": float,
    "proposals": int,
    "faults": int,
    "decision_code": str,
    "settings": str,
}
_CANDIDATES = {
    "episode": str,
    "candidate": str,
    "provider": str,
    "verdict": str,
    "reason": str,
    "detail": str,
    "incumbent": str,
    "pairs": int,
    "speedup": float,
    "lower": float,
    "upper": float,
    "median_us": float,
    "source": str,
    "hypothesis": str,
    "knobs": str,
}
_MEASUREMENTS = {
    "episode": str,
    "subject": str,
    "pair": int,
    "unit": str,
    "grade": str,
    "arm": str,
    "case_id": str,
    "phase": str,
    "calls": int,
    "wrong": int,
    "median_us": float,
}
_LEADERBOARD: dict[str, type] = {
    **dict.fromkeys(Row.__dataclass_fields__, str),
    "rank": int,
    "speedup": float,
    "lower": float,
    "median_us": float,
}


def rebuild(states: Iterable[State], home: Path) -> Path:
    """Write all views of these episodes anew; returns the file. On an error the old file stays."""
    found = list(states)
    final, fresh = home / FILE, home / f".{FILE}.{os.getpid()}"
    try:
        _write(found, fresh)
        os.replace(fresh, final)
    finally:
        fresh.unlink(missing_ok=True)
    return final


def _write(states: list[State], path: Path) -> None:
    path.unlink(missing_ok=True)
    # plugins of the user's environment have no business in a file that is only ours
    database = Database(path, execute_plugins=False)
    try:
        _table(database, "episodes", _EPISODES, map(_episode, states), "episode")
        _table(database, "candidates", _CANDIDATES, (row for state in states for row in _candidates(state)), None)
        _table(database, "measurements", _MEASUREMENTS, (row for state in states for row in _measurements(state)), None)
        _table(database, "leaderboard", _LEADERBOARD, (row.as_dict() for row in leaderboard(states)), None)
    finally:
        database.close()


def _table(
    database: Database, name: str, columns: dict[str, Any], rows: Iterable[dict[str, Any]], key: str | None
) -> None:
    table = database.table(name)
    table.create(columns, pk=key)
    table.insert_all(rows)


def _episode(state: State) -> dict[str, Any]:
    started, finished = state.started, state.finished
    assert started is not None
    return {
        "episode": state.episode,
        "stage": state.stage,
        "outcome": finished.outcome if finished else None,
        "winner": finished.winner if finished else None,
        "speedup": finished.speedup if finished else None,
        "lower": finished.lower if finished else None,
        "stopping_reason": finished.stopping_reason if finished else None,
        "operator": started.operator,
        "bundle": started.bundle,
        "shape": shape(started.shape),
        "dtype": started.dtype,
        "device_label": started.device_label,
        "engine": started.engine,
        "aa_halfwidth": state.calibration.aa_halfwidth if state.calibration else None,
        "proposals": state.proposals,
        "faults": len(state.faults),
        "decision_code": started.decision_code,
        "settings": json.dumps(started.settings, sort_keys=True),
    }


def _candidates(state: State) -> Iterator[dict[str, Any]]:
    for one in state.candidates.values():
        numbers = one.judged.numbers if one.judged else {}
        told = one.rejected or one.judged
        yield {
            "episode": state.episode,
            "candidate": one.id,
            "provider": one.proposed.provider,
            "verdict": one.judged.verdict if one.judged else "reject" if one.rejected else None,
            "reason": told.reason if told else None,
            "detail": told.detail if told else None,
            "incumbent": one.incumbent_at_measure,
            "pairs": len(one.pairs),
            "speedup": numbers.get("speedup"),
            "lower": numbers.get("lower"),
            "upper": numbers.get("upper"),
            "median_us": numbers.get("median_us"),
            "source": one.proposed.source,
            "hypothesis": one.proposed.hypothesis,
            "knobs": json.dumps(one.proposed.knobs, sort_keys=True),
        }


def _measurements(state: State) -> Iterator[dict[str, Any]]:
    yield from _of_pairs(state.episode, "baseline", state.aa_pairs)
    for one in state.candidates.values():
        yield from _of_pairs(state.episode, one.id, one.pairs)
    for candidate, pairs in state.finalist_pairs.items():
        yield from _of_pairs(state.episode, f"final {candidate}", pairs)


def _of_pairs(episode: str, subject: str, pairs: tuple[Pair, ...]) -> Iterator[dict[str, Any]]:
    """One row per pair, arm, case and phase."""
    for index, pair in enumerate(pairs):
        groups: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        for series in pair.series:
            calls = zip(series.ns, series.why, strict=False)
            groups.setdefault((series.arm, series.case, _phase(series.block)), []).extend(calls)
        for (arm, case, phase), calls_of in groups.items():
            yield {
                "episode": episode,
                "subject": subject,
                "pair": index,
                "unit": pair.unit,
                "grade": pair.grade,
                "arm": arm,
                "case_id": case,
                "phase": phase,
                "calls": len(calls_of),
                "wrong": sum(1 for _, why in calls_of if why),
                "median_us": median(ns for ns, _ in calls_of) / 1e3 if calls_of else None,
            }


def _phase(block: int) -> str:
    return {-1: "verify", -2: "alone-before", -3: "alone-after"}.get(block, "interleaved")
