"""An episode on disk: its name, the lock that keeps a second runner away, the folder of artifacts derived from the log.

`runs/<episode>/` holds the seed's layout (best_kernel.py, result.json, experiments/<id>/kernel.py). All of it is
written from the log and its blobs: it may be deleted, and `assay resume` of the finished episode builds it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventstore.log import Log
from ops.decide.reasons import REASONS
from replay.fold import CandidateState, State
from runner.exits import Busy, NotFound, UsageError

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def new_id(label: str) -> str:
    """`<label>-<yymmdd>-<hhmmss>-<random>`, UTC: sorts by time within a label, safe in paths and container names."""
    stem = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:15].strip("-") or "run"
    return f"{stem}-{time.strftime('%y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def check_id(text: str) -> str:
    """An episode's name as a user typed it, before it becomes part of a path. UsageError when it cannot be one."""
    if not _ID.fullmatch(text):
        raise UsageError(f"not an episode's name: {text!r}")
    return text


def known(log: Log, episode: str) -> str:
    """The name, when the log holds that episode; else NotFound names the nearest way on."""
    if check_id(episode) not in log.store.streams():
        raise NotFound(f"no episode {episode} in this home; see `assay episodes`")
    return episode


def folder(home: Path, episode: str) -> Path:
    return home / "runs" / episode


@contextlib.contextmanager
def locked(home: Path, episode: str) -> Iterator[Path]:
    """Hold the episode; yields its folder. Busy when another runner holds it. The kernel frees it when we die."""
    place = folder(home, episode)
    place.mkdir(parents=True, exist_ok=True)
    handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"episode {episode} is being run by another process") from None
        yield place
    finally:
        os.close(handle)


def forget(home: Path, episode: str) -> None:
    """Remove the folder of an episode that never began: no partial state."""
    shutil.rmtree(folder(home, episode), ignore_errors=True)


def summary(state: State, home: Path) -> dict[str, Any]:
    """The one JSON result on stdout: the seed's words and ours, without any source text."""
    started, finished = state.started, state.finished
    assert started is not None
    winner = finished.winner if finished else None
    return {
        "episode": state.episode,
        "success": bool(winner),
        "outcome": finished.outcome if finished else "unfinished",
        "stopping_reason": finished.stopping_reason if finished else "",
        "refused": f"{state.refused.reason}: {state.refused.detail}" if state.refused else None,
        "winner_experiment_id": winner or "baseline",
        "final_speedup": finished.speedup if finished else None,
        "final_speedup_lower": finished.lower if finished else None,
        "bundle": started.bundle,
        "operator": started.operator,
        "shape": started.shape,
        "dtype": started.dtype,
        "device": started.device_label,
        "engine": started.engine,
        "grade": _grade(state),
        "baseline_us": dict(state.calibration.median_us) if state.calibration else {},
        "aa_halfwidth": state.calibration.aa_halfwidth if state.calibration else None,
        "experiments": [_experiment(candidate) for candidate in state.candidates.values()],
        "failed_proposals": len(state.failures),
        "faults": len(state.faults),
        "artifacts_dir": str(folder(home.absolute(), state.episode)),
    }


def write_artifacts(log: Log, state: State, home: Path) -> None:
    """Derive `runs/<episode>/` from the log: sources of all candidates, the best kernel, the result."""
    place = folder(home, state.episode)
    assert state.started is not None
    best = state.finished.winner_source if state.finished else None
    for candidate in state.candidates.values():
        _write(place / "experiments" / candidate.id / "kernel.py", log.blobs.get(candidate.proposed.source))
    source = log.blobs.get(best or state.started.manifest["kernel.py"])
    _write(place / "best_kernel.py", source)
    result = {**summary(state, home), "best_kernel": source.decode("utf-8", "replace")}
    _write(place / "result.json", (json.dumps(result, indent=2, sort_keys=True) + "\n").encode())


def _experiment(candidate: CandidateState) -> dict[str, Any]:
    proposed, judged = candidate.proposed, candidate.judged
    status = "promoted" if candidate.promoted else "rejected" if candidate.rejected else "unsettled"
    reason = candidate.rejected.reason if candidate.rejected else judged.reason if judged else ""
    return {
        "experiment_id": candidate.id,
        "status": status,
        "reason": reason,
        "meaning": REASONS.get(reason, ""),
        "verdict": judged.verdict if judged else None,
        "numbers": judged.numbers if judged else {},
        "knobs": proposed.knobs,
        "hypothesis": proposed.hypothesis,
        "evidence": proposed.evidence,
        "mutation_summary": proposed.change,
        "expected_effect": proposed.expected_effect,
        "risk": proposed.risk,
        "source": proposed.source,
        "source_path": f"experiments/{candidate.id}/kernel.py",
    }


def _grade(state: State) -> str | None:
    return state.aa_pairs[0].grade if state.aa_pairs else None


def _write(path: Path, raw: bytes) -> None:
    """Whole or not at all: a reader never sees half a kernel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(raw)
    fresh.replace(path)
