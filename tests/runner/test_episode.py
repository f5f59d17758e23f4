"""Names, locks and artifacts of an episode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventstore.log import Log
from runner import episode
from runner.context import worked_s
from runner.exits import Busy, UsageError
from runner.fake import source
from tests.runner.stories import play


@pytest.mark.parametrize("label", ["rmsnorm", "fused_bias_gelu", "My Bundle!", "../..", "", "x" * 99])
def test_a_fresh_name_is_safe_everywhere_and_never_the_same(label: str) -> None:
    first, second = episode.new_id(label), episode.new_id(label)
    assert first != second
    assert episode.check_id(first) == first
    assert re.fullmatch(r"[a-z0-9-]{1,15}-\d{6}-\d{6}-[0-9a-f]{4}", first)


@pytest.mark.parametrize("text", ["", "..", "a/b", "A", "a b", "-x", "x" * 41, "a\n"])
def test_what_is_no_name_never_becomes_a_path(text: str) -> None:
    with pytest.raises(UsageError):
        episode.check_id(text)


def test_an_episode_is_held_by_one_and_free_again_afterwards(tmp_path: Path) -> None:
    with episode.locked(tmp_path, "e"), pytest.raises(Busy), episode.locked(tmp_path, "e"):
        pass
    with episode.locked(tmp_path, "e"):
        pass


def test_artifacts_are_derived_from_the_log_alone(tmp_path: Path) -> None:
    state = play(tmp_path, [source(50.0), source(200.0)])
    with Log.open(tmp_path, read_only=True) as log:
        episode.write_artifacts(log, state, tmp_path)
        first = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
        for path in first:
            path.unlink()
        episode.write_artifacts(log, state, tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()} == first
    names = sorted(str(path.relative_to(tmp_path / "runs" / "story-1")) for path in first)
    assert names == ["best_kernel.py", "experiments/c001/kernel.py", "experiments/c002/kernel.py", "result.json"]


def test_a_pause_before_a_resumption_is_no_working_time(tmp_path: Path) -> None:
    play(tmp_path, [source(50.0)])
    with Log.open(tmp_path) as log:
        events = list(log.read("story-1"))
        total = (events[-1].at_ns - events[0].at_ns) / 1e9
        assert worked_s(events) == pytest.approx(total)
        late = events[-1].__class__(**{**_fields(events[-1]), "at_ns": events[-1].at_ns + 10**12})
        resumed = late.__class__(**{**_fields(late), "kind": "episode.resumed"})
    assert worked_s([*events, resumed]) == pytest.approx(total)
    assert worked_s([*events, late]) == pytest.approx(total + 1000)


def _fields(event: object) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}  # type: ignore[attr-defined]
