"""Making files and directories survive a power cut: a new name is durable only after its directory was synced."""

from __future__ import annotations

import os
from pathlib import Path


def sync_dir(path: Path) -> None:
    """Flush the names inside a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_durable_dir(path: Path) -> None:
    """Create a directory and its missing parents, each durable in its parent. Existing ones are left as they are."""
    if path.is_dir():
        return
    make_durable_dir(path.parent)
    path.mkdir(exist_ok=True)
    sync_dir(path.parent)
