"""A private folder for one container or one build, that goes when we do, and is swept when we could not.

Containers see parts of it as bind mounts; nobody else on the host passes into it. Its path is short (a Unix socket's name is at
most 107 bytes) and says nothing but our own pid.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def workspace() -> Iterator[Path]:
    """A fresh folder with a folder `arms` in it; removed afterwards, whatever was written."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"assay-{os.getpid()}-{_space()}-"))
    (folder / "arms").mkdir(mode=0o711)
    try:
        yield folder
    finally:
        _remove(folder)


def release(source: bytes, place: Path) -> None:
    """Put the source where the guest's read-only mount shows it. Written beside, then renamed: never seen half."""
    fd, name = tempfile.mkstemp(dir=place.parent)
    with os.fdopen(fd, "wb") as file:
        file.write(source)
    os.chmod(name, 0o444)
    os.rename(name, place / "kernel.py")


def sweep() -> list[Path]:
    """Remove the workspaces of runners that were killed, and name them.

    A folder names its runner's pid and pid namespace: where that is another one, the number means nothing here and the folder is
    left alone. What is in it does not count (its runner may have died between two calls), but it must be a folder of ours: anybody
    may put a link of such a name into a temporary folder.
    """
    removed = []
    for left in Path(tempfile.gettempdir()).glob(f"assay-*-{_space()}-*"):
        named = re.fullmatch(r"assay-(\d+)-\d+-[a-z0-9_]{8}", left.name)
        if named and not Path("/proc", named[1]).exists() and _ours(left):
            _remove(left)
            removed.append(left)
    return removed


def _ours(folder: Path) -> bool:
    try:
        seen = folder.lstat()
    except FileNotFoundError:  # another runner sweeps too
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()


def _space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _remove(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, 0o700)
    with suppress(FileNotFoundError):  # two runners may sweep at once
        shutil.rmtree(folder)
