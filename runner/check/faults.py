"""Faults of the platform, provoked where that harms nobody: each function breaks one thing of ours and says what came of it.

What is broken is always the suite's own: a runner that it started, a proxy before the daemon, a tmpfs in a mount namespace of its
own. Nothing is done to the host's daemon, clock or GPU.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.check.proxy import Resetting
from sandbox import cgroups, leavings
from sandbox.api import Job, Limits, Mount, SandboxFault
from sandbox.docker import DockerSandbox, connect
from sandbox.status import classify

if TYPE_CHECKING:
    from runner.check.attempt import Bench

Action = Callable[["Bench", str, Path], tuple[str, str]]
"""Engine and image, a mark to name things by, a folder of its own -> what was observed, and the evidence."""

RUNNER = """
import sys, time
from pathlib import Path
from images.host import host_image
from sandbox.api import Job, Limits
from sandbox.find import find
engine, python, mark = sys.argv[1:]
job = Job(mark, "guest", ("-I", "-c", "import time; time.sleep(60)", mark), host_image(Path(python), docker=engine == "docker"),
          limits=Limits(wall_s=60))
with find(engine).start(job):
    print("runs", flush=True)
    time.sleep(60)
"""
PROJECT = Path(__file__).resolve().parents[2]
RUNNER_S = 180.0


def runner_killed(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """A runner dies by SIGKILL while its container runs; `assay sandbox gc` does the rest. (The caller looks for leftovers.)"""
    with _program("-c", RUNNER, bench.sandbox.name, bench.image.python, mark) as runner:
        try:
            assert runner.stdout is not None
            ready, _, _ = select.select([runner.stdout], [], [], RUNNER_S)
            said = os.read(runner.stdout.fileno(), 100) if ready else b"nothing"
        finally:
            runner.kill()
        code = runner.wait(RUNNER_S)
    (boxes, full), (groups, busy) = leavings.containers(), leavings.groups()
    if not said.startswith(b"runs") or code != -signal.SIGKILL:
        return "not provoked", f"the runner said {said!r} and ended with {code}"
    removed, stuck = boxes + groups, full + busy
    return ("not removed", "; ".join(stuck)) if stuck else ("cleared", f"{len(removed)} leavings removed")


def start_fails(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """No such image or interpreter, and no such folder to mount: each is our fault, not the program's."""
    bad = replace(bench.image, engine_ref="sha256:" + "0" * 64, python="/nowhere/python")
    job = Job(mark, "guest", ("-I", "-c", "pass"), bench.image)
    words = []
    for broken in (replace(job, image=bad), replace(job, mounts=(Mount(folder / "absent", "/absent"),))):
        try:
            words.append(str(classify(bench.sandbox.run(broken))))
        except SandboxFault as fault:
            words.append(str(classify(fault)))
    return " ".join(sorted(set(words))), "a bad image and an absent folder"


def wait_reset(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """The daemon resets the connection on which we wait for a container's end."""
    daemon = os.environ.get("DOCKER_HOST")
    job = Job(mark, "guest", ("-I", "-c", "pass"), bench.image, limits=Limits(wall_s=20))
    with Resetting(folder / "d", b"/wait") as proxy:
        os.environ["DOCKER_HOST"] = f"unix://{folder}/d"
        try:
            observed = str(classify(DockerSandbox().run(job)))
            evidence = "no fault"
        except SandboxFault as fault:
            observed, evidence = str(classify(fault)), str(fault)[:120]
        finally:
            os.environ.pop("DOCKER_HOST")
            if daemon is not None:
                os.environ["DOCKER_HOST"] = daemon
    return (observed, evidence) if proxy.resets else ("not provoked", "no request was reset")


def disk_full(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """The disk of the log is full: one line and the exit code for it. The small disk is seen by that process only."""
    home = folder / "home"
    home.mkdir()
    mount = 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"'
    search = ("optimize", "rmsnorm", "--device", "cpu", "--engine", bench.sandbox.name, "--home", str(home))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, home, sys.executable, "-m", "runner.cli", *search],
        cwd=PROJECT,
        env={**os.environ, "ASSAY_GUEST_PYTHON": bench.image.python, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        timeout=RUNNER_S,
        check=False,
    )
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"exit {done.returncode}", lines[-1][:120] if lines else "no line"


def foreign(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """The collector meets a container, or a cgroup, that is not ours."""
    if bench.sandbox.name == "bwrap":
        group = cgroups.Group.create(f"foreign.{mark}", Limits())
        try:
            leavings.groups()
            left = all(path.is_dir() for path in group.paths())
        finally:
            group.remove()
        return ("untouched" if left else "removed"), "a cgroup without our name"
    with closing(connect()) as api:
        made = api.create_container(bench.image.engine_ref, "true", name=f"foreign-{mark}", labels={"assay": "foreign"})
        try:
            leavings.containers()
            left = any(one["Id"] == made["Id"] for one in api.containers(all=True))
        finally:
            api.remove_container(made["Id"], force=True)
    return ("untouched" if left else "removed"), "a container without our owner's label"


def counted(bench: Bench, mark: str, folder: Path) -> tuple[str, str]:
    """The kernel's counters of this host's kind of cgroups are read for a run."""
    done = bench.sandbox.run(Job(mark, "guest", ("-I", "-c", "pass"), bench.image))
    missing = [
        name for name in ("cpu_s", "memory_peak_bytes", "oom_kills", "pids_refused") if getattr(done, name) is None
    ]
    return ("not counted" if missing else "counted"), f"cgroups: {cgroups.kind()}" + (
        f", no {missing}" if missing else ""
    )


def _program(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
