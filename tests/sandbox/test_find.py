"""Docker when a daemon answers, else bubblewrap, else one clear line; never nothing at all around a candidate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from sandbox import cgroups, find, host
from sandbox.api import SandboxUnavailable
from sandbox.bwrap import GROUP, BwrapSandbox
from sandbox.docker import DockerSandbox, connect

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_docker(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


@pytest.mark.sandbox
def test_bubblewrap_is_taken_when_no_daemon_answers(no_docker):
    assert find.find("auto").name == "bwrap"
    with pytest.raises(SandboxUnavailable, match="no sandbox on this host: Docker: no daemon answers"):
        find.find("docker")


def test_with_neither_one_line_says_what_to_install(no_docker, monkeypatch):
    monkeypatch.setattr(host, "bwrap_path", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxUnavailable, match=r"dockerd.*; or bubblewrap: not found; install it") as error:
        find.find("auto")
    assert "\n" not in str(error.value)
    checks = {check.name: check for check in find.probe()}
    assert (checks["docker"].ok, checks["bwrap"].ok) == (False, False)
    assert all(check.fix for check in checks.values() if not check.ok)


def test_bubblewrap_needs_root(no_docker, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxUnavailable, match="run as root"):
        find.find("bwrap")


@pytest.mark.sandbox
def test_docker_is_the_default_when_it_answers(engine):
    found = find.find("auto" if engine == "docker" else "bwrap")
    facts = found.describe()
    assert (found.name, facts["engine"]) == (engine, engine)
    assert facts["seccomp"].startswith("sha256:")
    assert facts["freezer"] in ("v1", "v2")
    json.dumps(facts)


ORPHAN = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from images.host import host_image
from sandbox.api import Job, Limits
from sandbox.find import find
sleep = ("-I", "-c", "import time; time.sleep(100)", sys.argv[4])
job = Job(sys.argv[4], "guest", sleep, host_image(Path(sys.argv[2])), limits=Limits(wall_s=200))
running = find(sys.argv[3]).start(job)
os.write(1, running._handle.container.encode())
os.kill(os.getpid(), 9)
"""


@pytest.mark.sandbox
def test_what_a_killed_runner_leaves_is_reaped_by_the_next(engine, sandbox, image, processes):
    name = f"assay-orphan-{os.getpid()}-{engine}"
    child = [sys.executable, "-c", ORPHAN, str(ROOT), image.python, engine, name]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60)
    assert (done.returncode, bool(done.stdout)) == (-9, True), done.stderr
    reaper = DockerSandbox() if engine == "docker" else BwrapSandbox()  # making one reaps
    assert reaper.reap() == []
    assert remaining(name, processes) == []


@pytest.mark.sandbox
def test_a_container_that_somebody_owns_is_not_reaped(sandbox, job):
    with sandbox.start(job("import time; time.sleep(30)")) as running:
        assert sandbox.reap() == []
        assert running.poll() is None


def remaining(name: str, processes) -> list[str]:
    """Containers, groups and processes that carry this name."""
    found = [group for group, _ in cgroups.named(GROUP) if group.endswith(name)]
    try:
        with closing(connect()) as api:
            found += [c["Id"] for c in api.containers(all=True, filters={"name": name})]
    except SandboxUnavailable:
        pass
    deadline = time.monotonic() + 5  # a bubblewrap guest dies with its parent, in its own time
    while (left := processes(name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found + left
