"""One lock per GPU, by UUID, across all processes of this host: whoever holds it may measure there, nobody else.

A `flock` on a file: the kernel lets go of it when its holder dies, however that happens. The file names the holder, so that whoever
waits in vain can say for whom. It knows nothing of users who do not ask for it (another container with its own /run, a training
job): those the gate sees through NVML.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.api import SandboxFault

UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
POLL_S = 0.05


class GpuBusy(SandboxFault):
    """Somebody else holds the GPU, or works on it. The message says who."""


def checked(uuid: str) -> str:
    """The UUID, fit to be part of a file's name. Raises SandboxFault."""
    if not UUID.fullmatch(uuid):
        raise SandboxFault(f"{uuid!r} is no GPU UUID")
    return uuid


def runtime_folder() -> Path:
    """Where locks lie: gone after a reboot, as every holder is."""
    return private(Path("/run/assay") if os.geteuid() == 0 else Path(f"/tmp/assay-locks-{os.geteuid()}"))


def private(folder: Path) -> Path:
    """The folder, made if need be; ours alone. Raises SandboxFault where it is a link, somebody else's, or cannot be made."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise SandboxFault(f"{folder}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SandboxFault(f"{folder}: not a folder that only we can write")
    return folder


@contextmanager
def held(uuid: str, who: str, wait_s: float, folder: Path | None = None) -> Iterator[None]:
    """Hold the GPU's lock. `who` is for people, one line. Raises GpuBusy after `wait_s` seconds, with the holder's name."""
    path = (folder or runtime_folder()) / f"gpu-{checked(uuid)}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxFault(f"{path}: {error.strerror}") from error
    try:
        _acquire(fd, uuid, wait_s)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} ({who.splitlines()[0][:200] if who else '?'})".encode(), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _acquire(fd: int, uuid: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(fd, 300, 0).decode("utf-8", "backslashreplace") or "somebody"
                raise GpuBusy(f"GPU {uuid} is held by {holder}; waited {wait_s:g} s") from None
            time.sleep(POLL_S)
