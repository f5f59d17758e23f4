"""The list of episodes: one row each, so that a name can be found again."""

from __future__ import annotations

from typing import Any

from eventstore.facts import EpisodeFinished
from replay.fold import State
from replay.leaderboard import bundle_name
from replay.livelog import shape, short, times


def row(state: State, begun: str) -> dict[str, Any]:
    """JSON-able. `begun`: when its first event was stored, as text. An outcome of `open` has not been reached yet."""
    started, finished = state.started, state.finished
    assert started is not None
    what = (bundle_name(started) or short(started.bundle), shape(started.shape), started.dtype or "")
    return {
        "episode": state.episode,
        "begun": begun,
        "what": " ".join(filter(None, what)),
        "where": f"{started.device_label}, {started.engine}",
        "candidates": len(state.candidates),
        "outcome": _outcome(finished) if finished else "open",
    }


def _outcome(finished: EpisodeFinished) -> str:
    return " ".join(filter(None, (finished.outcome, finished.winner, times(finished.speedup))))
