"""Workspaces of dead runners go, however far their runner had come; nothing else does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from runner import workspace


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workspace.tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def dead() -> int:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(10)
    return process.pid


def test_what_a_dead_runner_had_begun_is_swept_full_or_empty(temporary: Path, dead: int) -> None:
    space = os.stat("/proc/self/ns/pid").st_ino
    empty, full = (temporary / f"assay-{dead}-{space}-{name}" for name in ("aaaaaaaa", "bbbbbbbb"))
    empty.mkdir()
    (full / "links" / "x").mkdir(parents=True)
    (full / "links" / "x").chmod(0o500)
    assert sorted(workspace.sweep()) == [empty, full]
    assert list(temporary.iterdir()) == []


def test_what_is_not_a_folder_of_ours_or_of_a_living_runner_stays(temporary: Path, dead: int) -> None:
    space = os.stat("/proc/self/ns/pid").st_ino
    victim = temporary / "victim"
    (victim / "arms").mkdir(parents=True)
    (victim / "arms").chmod(0o755)
    (temporary / f"assay-{dead}-{space}-cccccccc").symlink_to(victim)
    (temporary / f"assay-{os.getpid()}-{space}-dddddddd").mkdir()
    (temporary / f"assay-{dead}-{space + 1}-eeeeeeee").mkdir()
    (temporary / f"assay-{dead}-{space}-notes").mkdir()
    others = temporary / f"assay-{dead}-{space}-ffffffff"
    others.mkdir()
    os.chown(others, 65534, 65534)
    before = sorted(temporary.iterdir())
    assert workspace.sweep() == []
    assert sorted(temporary.iterdir()) == before
    assert (victim / "arms").stat().st_mode & 0o777 == 0o755


def test_a_workspace_is_gone_afterwards_whatever_is_in_it(temporary: Path) -> None:
    with workspace.workspace() as folder:
        (folder / "arms" / "x").mkdir(mode=0o500)
    assert list(temporary.iterdir()) == []
