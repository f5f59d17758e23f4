"""Real containers for the tests below: both engines, the host image, and the promise that nothing is left behind."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from images.api import Image
from images.host import host_image
from sandbox import cgroups, host
from sandbox.api import Job, Limits, Mount, Outcome, Sandbox, SandboxUnavailable
from sandbox.bwrap import GROUP
from sandbox.docker import OWNER, connect
from sandbox.find import find

GUEST_PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", Path(__file__).parents[2] / ".guest" / "bin" / "python"))
MARK = f"assay-t{os.getpid()}-"
"""In the name of each container of this test process, and as an argument of each process in it."""

Run = Callable[..., Outcome]
MakeJob = Callable[..., Job]


@pytest.fixture(scope="session")
def image() -> Image:
    return host_image(GUEST_PYTHON)


@pytest.fixture(params=["docker", "bwrap"], scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def sandbox(engine: Any) -> Sandbox:
    return find(engine)


@pytest.fixture
def job(image: Image, engine: str, request: pytest.FixtureRequest) -> MakeJob:
    """A job that runs Python source text; keywords are limits."""
    count = iter(range(1000))

    def make(code: str, *args: str, mounts: tuple[Mount, ...] = (), **limits: Any) -> Job:
        caps = Limits(**{"wall_s": 30.0, "memory_bytes": 512 << 20} | limits)
        name = f"{MARK}{engine}-{zlib.crc32(request.node.nodeid.encode()):08x}-{next(count)}"
        return Job(name, "guest", ("-I", "-c", code, name, *args), image, mounts=mounts, limits=caps)

    return make


@pytest.fixture
def run(sandbox: Sandbox, job: MakeJob) -> Run:
    return lambda *args, **kwargs: sandbox.run(job(*args, **kwargs))


def leftovers(processes: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Everything of this test process's containers that still exists, by kind."""
    me = host.owner(os.getpid())
    containers: list[str] = []
    try:
        with closing(connect()) as api:
            containers = [c["Names"][0] for c in api.containers(all=True, filters={"label": f"{OWNER}={me}"})]
    except SandboxUnavailable:
        pass  # then no container of ours can exist
    _, space, pid, started = me.split(":")
    return {
        "containers": containers,
        "cgroups": [name for name, _ in cgroups.named(f"{GROUP}{space}.{pid}.{started}.")],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if MARK in line],
        "processes": processes(MARK),
    }


@pytest.fixture
def nothing_left(processes: Callable[[str], list[str]]) -> Iterator[None]:
    """After the test: no container, cgroup, mount or process of ours."""
    yield
    assert leftovers(processes) == {"containers": [], "cgroups": [], "mounts": [], "processes": []}
