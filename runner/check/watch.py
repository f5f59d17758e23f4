"""What a container may have left on the host: found by the names that only ours carry, and by the machine's own figures.

Names are exact: a container, cgroup, mount, process or file of ours is found however small. The machine's figures are shared with
everybody on it, so their tolerances are wide: they find an escape, not a small leak.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandbox import cgroups, host
from sandbox.api import SandboxUnavailable
from sandbox.bwrap import GROUP
from sandbox.docker import OWNER, connect

TOLERANCE = {"memory": 1 << 30, "disk": 1 << 30, "inodes": 50_000, "pids": 500}
"""Bytes, bytes, number, number: what others on the machine may take while one program runs."""
SETTLE_S = 15.0
FILE_PLACES = ("/dev/shm", "/tmp", "/var/tmp", "/run")


@dataclass(frozen=True)
class Figures:
    """Of the whole machine: bytes of memory available, of disk free on the temporary folder, inodes free there, and processes."""

    memory: int
    disk: int
    inodes: int
    pids: int


def figures() -> Figures:
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    place = os.statvfs(tempfile.gettempdir())
    pids = sum(name.isdigit() for name in os.listdir("/proc"))
    return Figures(int(available.split()[1]) << 10, shutil.disk_usage(tempfile.gettempdir()).free, place.f_ffree, pids)


def taken(before: Figures, settle_s: float = SETTLE_S) -> list[str]:
    """What is missing beyond tolerance and does not come back within `settle_s`."""
    deadline = time.monotonic() + settle_s
    while missing := list(_missing(before, figures())):
        if time.monotonic() > deadline:
            return missing
        time.sleep(0.2)
    return []


def _missing(before: Figures, now: Figures) -> Iterator[str]:
    for name, most in TOLERANCE.items():
        sign = -1 if name == "pids" else 1
        gone = sign * (getattr(before, name) - getattr(now, name))
        if gone > most:
            yield f"{name}: {gone} gone"


def leftovers(mark: str, container: str = "") -> list[str]:
    """All of this process's containers and cgroups, and whatever else carries the mark in its name; `kind: what` each."""
    me = host.owner(os.getpid())
    _, space, pid, started = me.split(":")
    found: list[str] = []
    try:
        with closing(connect()) as api:
            for one in api.containers(all=True):
                if one["Labels"].get(OWNER) == me or mark in one["Names"][0]:
                    found.append(f"container: {one['Names'][0].lstrip('/')}")
    except SandboxUnavailable:
        pass  # then no container of ours can exist
    mine = f"{GROUP}{space}.{pid}.{started}."
    found += [f"cgroup: {name}" for name, _ in cgroups.named(GROUP) if name.startswith(mine) or mark in name]
    if len(container) == 64:  # Docker's own groups
        found += [f"cgroup: {name}" for name, _ in cgroups.named(container)]
    names = [mark, *([container] if container else [])]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [f"mount: {line}" for line in mounts if any(name in line for name in names)]
    found += [f"process: {pid}" for pid in _processes(mark)]
    places = {*FILE_PLACES, tempfile.gettempdir(), os.getcwd()}
    found += [f"file: {path}" for place in sorted(places) for path in Path(place).glob(f"*{mark}*")]
    return found


def _processes(mark: str) -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if mark.encode() in line and int(folder.name) != os.getpid():
            yield folder.name
