"""The runner is killed with SIGKILL in the middle of a real measurement; the episode goes on from its log, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cheats
import program

from ops import registry

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("engine", ["docker", "bwrap"])
@pytest.mark.parametrize("last", ["baseline status=measured pair=1", "c001 status=measured pair=0"])
def test_a_killed_run_resumes_without_repeating_what_was_finished(engine: str, last: str, tmp_path: Path) -> None:
    bundle, mock, home = tmp_path / "bundle", tmp_path / "mock", tmp_path / "home"
    bundle.mkdir()
    mock.mkdir()
    for name, raw in registry.get("rmsnorm").bundle(cheats.SHAPE, "fp32", "cpu").items():
        (bundle / name).write_bytes(raw)
    (mock / "faster.py").write_text(cheats.FASTER)
    options = ("--device", "cpu", "--engine", engine, "--aa-pairs", "5", "--max-cv", "0.5", "--blocks", "4")
    command = (sys.executable, "-m", "runner.cli", "run", str(bundle), "--provider", "mock", "--mock-dir", str(mock))
    running = subprocess.Popen(
        [*command, "--home", str(home), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=program.ROOT
    )
    assert running.stderr is not None
    for line in running.stderr:
        if last in line.decode():
            os.kill(running.pid, signal.SIGKILL)
            break
    running.stderr.close()
    assert running.wait(30) == -signal.SIGKILL

    name = next(path.name for path in (home / "runs").iterdir())
    done = program.assay("resume", name, "--home", str(home))
    assert done["outcome"] in ("winner", "no-winner", "refused"), (
        done
    )  # which one is the machine's noise; a fault would be ours
    log = program.assay("log", "verify", "--json", "--home", str(home))
    assert log["ok"] is True
    shown = program.assay("show", name, "--json", "--home", str(home))
    units = [pair["unit"] for one in (shown["baseline"], *shown["candidates"]) for pair in one["pairs"]]
    assert len(shown["baseline"]["pairs"]) == 5
    assert len(units) == len(set(units))
    assert program.assay("replay", name, "--json", "--home", str(home))["agree"] is True
