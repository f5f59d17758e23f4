"""A private folder for one container or one build, that goes when we do, and is swept when we could not.

Containers see parts of it as bind mounts, so its path is short (a Unix socket's name is at most 107 bytes), passable by the
containers' uids, and says nothing but our own pid.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def workspace() -> Iterator[Path]:
    """A fresh folder with a folder `arms` in it; removed afterwards, whatever was written."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"assay-{os.getpid()}-{_space()}-"))
    os.chmod(folder, 0o711)
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
    left alone.
    """
    removed = []
    for left in Path(tempfile.gettempdir()).glob(f"assay-*-{_space()}-*"):
        pid = left.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists() and (left / "arms").is_dir() and left.owner() == "root":
            _remove(left)
            removed.append(left)
    return removed


def _space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _remove(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            os.chmod(path, 0o700)
    shutil.rmtree(folder)
