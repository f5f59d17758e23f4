"""What this host offers to containers, gathered once, as the value on which `policy` depends."""

from __future__ import annotations

import os
import re
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path

from sandbox import gpu
from sandbox.api import Job, Mount, SandboxFault
from sandbox.policy import Host

TOP_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
BWRAP = ("bwrap", "/usr/bin/bwrap", "/opt/engine/bin/bwrap")


def current(limits_of: int | None = None) -> Host:
    """The host as a process sees it; `limits_of` is the pid of the daemon whose hard limits count (default: ours)."""
    return Host(
        owner=owner(os.getpid()),
        now=time.time(),
        open_files_max=_hard(resource.RLIMIT_NOFILE, "Max open files", limits_of),
        memlock_max=_hard(resource.RLIMIT_MEMLOCK, "Max locked memory", limits_of),
        file_max=_hard(resource.RLIMIT_FSIZE, "Max file size", limits_of),
        links=tuple((link, os.readlink(link)) for link in TOP_LINKS if os.path.islink(link)),
        gpus={uuid: gpu.nodes(uuid) for uuid in gpu.minors()},
        bwrap=bwrap_path() or "bwrap",
        canary=str(Path(__file__).parent / "guest" / "canary.py"),
    )


def owner(pid: int) -> str:
    """`boot id:pid namespace:pid:start time`: names one process for ever. Empty when there is none with this pid."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
    return f"{boot}:{_pid_namespace()}:{pid}:{started}"


def alive(who: str) -> bool:
    """Whether the process that `owner` named is still there. One of another pid namespace counts as alive: its number means
    nothing here, while its cgroups and containers are in plain sight, and whoever reaped them would kill a stranger's run."""
    parts = who.split(":")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    mine = owner(os.getpid()).split(":")
    if parts[0] == mine[0] and parts[1] != mine[1]:
        return True
    return owner(int(parts[2])) == who


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def bwrap_path() -> str | None:
    return next(filter(None, map(shutil.which, BWRAP)), None)


def settled(job: Job) -> Job:
    """The job with every mount source resolved, so that policy judges what is really mounted. Raises SandboxFault."""

    def real(mount: Mount) -> Mount:
        source = mount.source.resolve()
        if not source.is_dir():
            raise SandboxFault(f"mount {mount.target}: {mount.source} is not a folder")
        return replace(mount, source=source)

    return replace(job, mounts=tuple(map(real, job.mounts)))


def _hard(number: int, name: str, pid: int | None) -> int:
    if pid is not None:
        try:
            found = re.search(rf"^{name}\s+\S+\s+(\S+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
        except OSError:
            found = None
        if found:
            return -1 if found[1] == "unlimited" else int(found[1])
    hard = resource.getrlimit(number)[1]
    return -1 if hard == resource.RLIM_INFINITY else hard
