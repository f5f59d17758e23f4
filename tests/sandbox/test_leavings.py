"""Garbage of a killed runner is removed; a live runner's, another namespace's and a stranger's is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox import bwrap, cgroups, host, leavings
from sandbox.api import SandboxUnavailable
from sandbox.bwrap import GROUP
from sandbox.docker import OWNER, connect

ROOT = Path(__file__).resolve().parents[2]
ME = host.owner(os.getpid())
BOOT, SPACE, PID, STARTED = ME.split(":")
DEAD = f"{BOOT}:{SPACE}:{PID}:1"
"""Our number, of an earlier process."""
ELSEWHERE = f"{BOOT}:1:{PID}:{STARTED}"

RUNNER = """
import sys, time
from pathlib import Path
from images.host import host_image
from runner.workspace import workspace
from sandbox.api import Job, Limits
from sandbox.find import find
engine, python, name = sys.argv[1:]
image = host_image(Path(python), docker=engine == "docker")
job = Job(name, "guest", ("-I", "-c", "import time; time.sleep(120)", name), image, limits=Limits(wall_s=120))
with workspace() as folder, find(engine).start(job):
    print(folder, flush=True)
    time.sleep(120)
"""


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        ({OWNER: ME, "assay.deadline": "0"}, False),  # its runner lives here: it looks after its own deadline
        ({OWNER: DEAD, "assay.deadline": "9999999999"}, True),
        ({OWNER: f"other-boot:{SPACE}:{PID}:{STARTED}", "assay.deadline": "9999999999"}, True),
        ({OWNER: ELSEWHERE, "assay.deadline": "1000"}, False),  # not long over
        ({OWNER: ELSEWHERE, "assay.deadline": "100"}, True),
        ({OWNER: ELSEWHERE}, False),
        ({OWNER: ""}, False),
        ({"maker": "somebody"}, False),
    ],
)
def test_only_what_nobody_looks_after_is_abandoned(labels: dict[str, str], answer: bool) -> None:
    assert leavings.abandoned(labels, now=1000.0) is answer


def gc(temporary: Path | None = None) -> list[str]:
    """What the command printed. Its temporary folder is a test's own where its line matters: every runner sweeps the shared one."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **({"TMPDIR": str(temporary)} if temporary else {})}
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", "sandbox", "gc"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def runner(engine: str, image, tmp_path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A live runner with one container: its process, the container's name, its folder."""
    name = f"assay-gc-{os.getpid()}-{engine}"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, engine, image.python, name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = process.stdout.readline().strip()
    assert folder
    yield process, name, folder
    process.kill()
    process.wait()
    process.stdout.close()
    gc()


@pytest.mark.sandbox
def test_a_killed_runners_leavings_go_and_a_live_ones_stay(runner, engine: str, processes, tmp_path) -> None:
    process, name, folder = runner
    assert not [line for line in gc(tmp_path) if name in line or folder in line]
    assert process.poll() is None
    assert Path(folder).is_dir()
    assert len(processes(name)) > 1  # the runner and what it runs

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert left(name)  # a container, or the cgroup of a bubblewrap whose processes died with the runner
    removed = gc(tmp_path)
    assert f"removed folder {folder}" in removed
    assert not Path(folder).exists()
    assert left(name) == []
    assert processes(name) == []
    assert not [line for line in gc(tmp_path) if name in line or folder in line]


def left(name: str) -> list[str]:
    """Containers and cgroups with a job's name."""
    found = [group for group, _ in cgroups.named(GROUP) if group.endswith(name)]
    if not lacks_docker():
        with closing(connect()) as api:
            found += [one["Names"][0] for one in api.containers(all=True, filters={"name": name})]
    return found


def lacks_docker() -> bool:
    try:
        connect().close()
    except SandboxUnavailable:
        return True
    return False


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["docker"])
def test_a_container_of_somebody_else_is_left_alone(engine: str, image) -> None:
    with closing(connect()) as api:
        made = [
            api.create_container(image.engine_ref, "true", labels=labels)["Id"]
            for labels in ({}, {"assay": "x"}, {OWNER: ELSEWHERE}, {OWNER: DEAD})
        ]
        try:
            gc()
            left = {found["Id"] for found in api.containers(all=True)}
            assert [container in left for container in made] == [True, True, True, False]
        finally:
            for container in made[:3]:
                api.remove_container(container, force=True)


@pytest.mark.sandbox
@pytest.mark.parametrize("engine", ["bwrap"])
def test_a_cgroup_that_is_not_ours_is_left_alone(engine: str) -> None:
    names = [
        "assay.short",
        f"{GROUP}1.{PID}.{STARTED}.x",
        f"{GROUP}{SPACE}.{PID}.{STARTED}.x",
        f"{GROUP}{SPACE}.{PID}.1.x",
    ]
    top = next(iter(cgroups._parents().values()))
    for name in names:
        (top / name).mkdir()
    try:
        gc()
        assert [(top / name).is_dir() for name in names] == [True, True, True, False]
    finally:
        for name in names[:3]:
            (top / name).rmdir()


@pytest.mark.parametrize(
    "name", ["assay.service", "assay.web.api.v1.service", "assay.x", "assay.1.2.3.", "assay.1.2.3.a/b"]
)
def test_a_strangers_cgroup_is_never_taken_for_a_dead_runners(name, monkeypatch):
    space = os.stat("/proc/self/ns/pid").st_ino
    ours = f"assay.{space}.4194305.1.assay-x"  # no pid is so high
    monkeypatch.setattr(bwrap.cgroups, "named", lambda prefix: [(name, None), (ours, None)])
    assert [found for found, _ in bwrap.dead_groups()] == [ours]
