"""Read the files of a folder that a guest could write to: only plain files, inside it, within caps, or a refusal by name.

Whatever lies there was made by an opponent who may still be at work: links out of the folder, pipes that never answer, files that
grow while they are read, names that break a log. Paths are resolved by the kernel (openat2) beneath the folder and nowhere else;
where the kernel lacks it, component by component, following nothing. What `stat` says of a size is not believed: reading counts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

CHUNK = 64 << 10
_OPENAT2 = 437  # on every architecture
_BENEATH = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
}


class CollectError(Exception):
    """Something there is not collected: one printable line, the name first."""


class Caps(NamedTuple):
    """What one folder may hold."""

    file_bytes: int = 1 << 20
    total_bytes: int = 8 << 20
    entries: int = 256
    """Files and folders, all together."""
    depth: int = 4
    """Levels; 1 is a folder without folders in it."""
    name_bytes: int = 100
    """Of one component."""


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def collect(folder: Path, caps: Caps | None = None) -> dict[str, bytes]:
    """Relative path -> bytes of every file in `folder` (itself ours, and no link). All of it, or CollectError.

    OSError only when `folder` itself cannot be opened.
    """
    caps = caps or Caps()
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _collect(root, caps)
    finally:
        os.close(root)


def read(root: int, path: str, max_bytes: int) -> bytes:
    """One file beneath the open directory `root`. CollectError unless it is a plain file with one name and no more bytes."""
    for flags in (_LOOK, _READ):  # looked at first: opening a device can already do something
        with _opened(root, path, flags) as fd:
            found = os.fstat(fd)
            kind = stat.S_IFMT(found.st_mode)
            if kind != stat.S_IFREG:
                raise CollectError(f"{shown(path)}: {_KINDS.get(kind, 'no plain file')}")
            if found.st_nlink != 1:
                raise CollectError(f"{shown(path)}: {found.st_nlink} names for one file (a hard link)")
            if flags == _READ:
                return _bounded(fd, path, max_bytes)
    raise AssertionError("unreachable")


def shown(name: str) -> str:
    """A stranger's name as it may stand in a line: ASCII, printable, cut."""
    return ascii(name)[1:-1][:80]


def _collect(root: int, caps: Caps) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left, entries, folders = caps.total_bytes, 0, [""]
    while folders:
        at = folders.pop()
        for name in _names(root, at, caps, entries):
            entries += 1
            path = f"{at}/{name}" if at else name
            if not _is_folder(root, path):
                found[path] = read(root, path, min(caps.file_bytes, left))
                left -= len(found[path])
            elif path.count("/") + 2 > caps.depth:
                raise CollectError(f"{shown(path)}: a folder, deeper than {caps.depth} levels")
            else:
                folders.append(path)
    return found


def _names(root: int, at: str, caps: Caps, entries: int) -> list[str]:
    """Sorted, every one fit for a log; never more than the cap is held in memory."""
    names: list[str] = []
    with _opened(root, at, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) as fd, os.scandir(fd) as entry:
        for one in entry:
            names.append(one.name)
            if entries + len(names) > caps.entries:
                raise CollectError(f"{shown(at) or '.'}: more than {caps.entries} entries")
    for name in names:
        if len(os.fsencode(name)) > caps.name_bytes:
            raise CollectError(f"{shown(name)}: a name longer than {caps.name_bytes} bytes")
        if not name.isprintable():  # what is not UTF-8 arrives as surrogates, which are not printable either
            raise CollectError(f"{shown(name)}: a name that is no printable text")
    return sorted(names)


def _is_folder(root: int, path: str) -> bool:
    with _opened(root, path, _LOOK) as fd:
        return stat.S_ISDIR(os.fstat(fd).st_mode)


def _bounded(fd: int, path: str, max_bytes: int) -> bytes:
    held = bytearray()
    while piece := os.read(fd, min(CHUNK, max_bytes + 1 - len(held))):
        held += piece
        if len(held) > max_bytes:
            raise CollectError(f"{shown(path)}: more than {max_bytes} bytes")
    return bytes(held)


@contextmanager
def _opened(root: int, path: str, flags: int) -> Iterator[int]:
    """A descriptor of `path` ("" is the root itself); what the kernel refuses is CollectError."""
    try:
        fd = _openat2(root, path or ".", flags) if has_openat2() else _component_wise(root, path, flags)
    except OSError as error:
        why = {errno.ELOOP: "a symbolic link", errno.EXDEV: "outside of the folder"}.get(error.errno or 0)
        raise CollectError(f"{shown(path) or '.'}: {why or error.strerror}") from None
    try:
        yield fd
    except OSError as error:
        raise CollectError(f"{shown(path) or '.'}: {error.strerror}") from None
    finally:
        os.close(fd)


@cache
def has_openat2() -> bool:
    """Whether this kernel has it and a filter lets us use it."""
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            os.close(_openat2(root, ".", os.O_PATH | os.O_CLOEXEC))
        finally:
            os.close(root)
    except OSError:
        return False
    return True


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(root: int, path: str, flags: int) -> int:
    how = _How(flags, 0, _BENEATH)
    fd: int = _libc().syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(24)
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def _component_wise(root: int, path: str, flags: int) -> int:
    """The same without openat2: no component is followed, none is `..`, none lies on another device."""
    parts = path.split("/") if path else ["."]
    if ".." in parts or "" in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    device, at = os.fstat(root).st_dev, os.dup(root)
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        try:
            below = os.open(part, flags if last else _LOOK | os.O_DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = below
        if os.fstat(at).st_dev != device:
            os.close(at)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return at
