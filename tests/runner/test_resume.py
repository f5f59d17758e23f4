"""A runner that is killed at any moment is taken up again: same end, nothing finished is done twice."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from eventstore.errors import Conflict
from eventstore.log import Log
from replay.rederive import replay
from runner import session
from runner.exits import Busy, NotFound, UsageError
from runner.fake import FakeLab, source
from tests.runner import stories

SOURCES = [source(50.0), source(100.0), source(60.0, "wrong"), source(20.0), source(5.0, "build-error")]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.runner.stories"])


def asked(lines: list[str]) -> Counter[str]:
    """What a lab was asked, without the version that makes a unit's name unique."""
    return Counter(re.sub(r"-v[0-9]+$", "", line) for line in lines)


def killed(target: Callable[..., None], *args: object) -> None:
    child = FORKS.Process(target=target, args=args)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def resumed(home: Path, lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> session.State:
    monkeypatch.setattr(session, "same", lambda *args: stories.fake_machine(lab))
    return session.resume(home, "story-1", None, lambda event: None)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stories.write_sources(tmp_path_factory.mktemp("mock") / "sources", SOURCES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> tuple[session.State, Counter[str], int]:
    """The same story without any interruption: its end, what its lab was asked, and its number of events."""
    lab = FakeLab()
    state = stories.begin(tmp_path_factory.mktemp("whole"), sources, lab)
    return stories.plain(state), asked(lab.asked), state.version


def test_a_runner_killed_after_any_event_is_resumed_to_the_same_end_without_repeating_anything(
    tmp_path: Path, sources: Path, whole: tuple[session.State, Counter[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, questions, versions = whole
    for version in range(1, versions):
        home, page = tmp_path / f"home{version}", tmp_path / f"page{version}"
        page.touch()
        killed(stories.begin_and_die_at, home, sources, page, version)
        lab = FakeLab()
        again = resumed(home, lab, monkeypatch)
        assert stories.plain(again) == state, f"killed after version {version}"
        assert asked(page.read_text().splitlines()) + asked(lab.asked) == questions, f"killed after version {version}"


@pytest.mark.parametrize("call", [1, 3, 8])
def test_a_runner_killed_at_work_repeats_only_the_work_it_was_killed_in(
    tmp_path: Path,
    sources: Path,
    call: int,
    whole: tuple[session.State, Counter[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, questions, _ = whole
    page = tmp_path / "page"
    killed(stories.begin_and_die_in, tmp_path / "home", sources, page, call)
    lab = FakeLab()
    assert stories.plain(resumed(tmp_path / "home", lab, monkeypatch)) == state
    repeated = asked(page.read_text().splitlines()) + asked(lab.asked) - questions
    assert repeated == asked(page.read_text().splitlines()[-1:])


def test_a_resumed_episode_replays_in_full_agreement(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(stories.begin_and_die_at, tmp_path / "home", sources, tmp_path / "page", 9)
    resumed(tmp_path / "home", FakeLab(), monkeypatch)
    with Log.open(tmp_path / "home", read_only=True) as log:
        assert replay(log.read("story-1"), log.blobs).agree


def test_resuming_a_finished_episode_adds_nothing_and_builds_its_artifacts_again(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, lab = tmp_path / "home", FakeLab()
    state = stories.begin(home, sources, FakeLab())
    best = home / "runs" / "story-1" / "best_kernel.py"
    assert best.read_bytes() == SOURCES[3]
    best.unlink()
    assert resumed(home, lab, monkeypatch) == state
    assert (lab.asked, best.read_bytes()) == ([], SOURCES[3])


def test_only_the_recorded_settings_count_for_a_resumed_run(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: session.Event) -> None:
        if event.kind == "baseline.calibrated":
            raise KeyboardInterrupt

    with pytest.raises(session.Interrupted):
        stories.begin(tmp_path, sources, FakeLab(), stop, max_candidates=2, finalist_pairs=5, calls=7)
    state = resumed(tmp_path, FakeLab(), monkeypatch)
    assert (state.proposals, len(state.finalist_pairs["c001"])) == (2, 5)
    assert {len(one.ns) for one in state.finalist_pairs["c001"][0].series if one.block >= 0} == {7}


def test_a_second_runner_on_the_same_episode_gets_one_clear_line(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    killed(stories.begin_and_die_at, home, sources, tmp_path / "page", 3)
    with open(home / "runs" / "story-1" / "lock") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(Busy, match=r"^episode story-1 is being run by another process$"):
            resumed(home, FakeLab(), monkeypatch)


def test_an_event_appended_by_somebody_else_meanwhile_is_a_conflict_and_not_overwritten(
    tmp_path: Path, sources: Path
) -> None:
    class Intruded(FakeLab):
        def build(self, contract, text, unit):  # type: ignore[no-untyped-def]
            if not self.asked:
                with Log.open(tmp_path / "home") as other:
                    stolen = session.EpisodeResumed(environment={"by": "another runner"})
                    other.append("story-1", [stolen], expected=1)
            return super().build(contract, text, unit)

    with pytest.raises(Conflict, match="is at version 2, expected 1"):
        stories.begin(tmp_path / "home", sources, Intruded())


def test_ctrl_c_leaves_an_episode_that_can_be_resumed_and_says_how(
    tmp_path: Path, sources: Path, whole: tuple[session.State, Counter[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(FakeLab):
        def _ask(self, what: str) -> None:
            super()._ask(what)
            if len(self.asked) == 4:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(session.Interrupted, match=r"^interrupted; go on with: assay resume story-1 --home /.*/home$"):
        stories.begin(tmp_path / "home", sources, Interrupting())
    assert stories.plain(resumed(tmp_path / "home", FakeLab(), monkeypatch)) == whole[0]


def test_faults_before_and_after_a_resumption_count_together(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stop(event: session.Event) -> None:
        seen.append(event.kind)
        if seen.count("faulted") == 2:
            raise KeyboardInterrupt

    with pytest.raises(session.Interrupted):
        stories.begin(tmp_path / "home", sources, FakeLab(faults=9), stop)
    state = resumed(tmp_path / "home", FakeLab(faults=9), monkeypatch)
    assert ([one.attempt for one in state.faults], state.finished and state.finished.outcome) == ([1, 2, 3], "fault")


@pytest.mark.parametrize(("name", "error"), [("story-2", NotFound), ("../story", UsageError), ("", UsageError)])
def test_an_unknown_episode_is_one_clear_line_and_leaves_nothing(
    tmp_path: Path, sources: Path, name: str, error: type[Exception]
) -> None:
    stories.begin(tmp_path, sources, FakeLab(), max_candidates=1)
    with pytest.raises(error):
        session.resume(tmp_path, name, None, lambda event: None)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["story-1"]


def test_a_fake_episode_is_never_continued_on_a_real_machine(tmp_path: Path, sources: Path) -> None:
    killed(stories.begin_and_die_at, tmp_path, sources, tmp_path / "page", 2)
    with pytest.raises(UsageError, match="made with the fake lab"):
        session.resume(tmp_path, "story-1", None, lambda event: None)
