"""The one place where apsw's and the operating system's errors become ours; nothing foreign leaves this package."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from eventstore.errors import FenceRefused, StoreCorrupt, StoreError, StoreFailed, StoreFull, StoreLocked, StoreReadOnly

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

_Make = Callable[[Path, str], StoreError]


def _corrupt(path: Path, said: str) -> StoreError:
    return StoreCorrupt(None, f"{path}: {said}")


def _denied(path: Path, said: str) -> StoreError:
    # a WAL database needs its -shm file even for reading; `immutable=1` would open it and silently miss newest events
    return StoreReadOnly(f"{path}: {said}; a log needs a directory that may be written, even to be read: use a copy")


def _failed(path: Path, said: str) -> StoreError:
    return StoreFailed(f"{path}: {said}")


_MEANINGS: dict[type[apsw.Error], _Make] = {
    apsw.BusyError: lambda path, said: StoreLocked(f"{path} is locked by another program: {said}"),
    apsw.LockedError: lambda path, said: StoreLocked(f"{path} is locked inside this program: {said}"),
    apsw.FullError: lambda path, said: StoreFull(f"no space left for {path}"),
    apsw.CorruptError: _corrupt,
    apsw.NotADBError: _corrupt,
    apsw.FormatError: _corrupt,
    apsw.ReadOnlyError: _denied,
    apsw.PermissionsError: _denied,
    apsw.AuthError: _denied,
    apsw.CantOpenError: _denied,
    apsw.ConstraintError: lambda path, said: FenceRefused(f"{path}: {said}"),
}
"""What each of apsw's errors means to a caller of ours; those not named here are `StoreFailed`."""


@contextmanager
def translated(path: Path, connection: apsw.Connection | None = None) -> Iterator[None]:
    """Turn what the block raises into a `StoreError`. `path` is named in the message; `connection` tells the errno."""
    try:
        yield
    except apsw.Error as error:
        raise from_apsw(error, path, _system_errno(connection)) from error
    except OSError as error:
        raise from_os(error, path) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged text in its message, and apsw cannot decode it
        raise _corrupt(path, "damaged text") from error


def from_apsw(error: apsw.Error, path: Path, system_errno: int = 0) -> StoreError:
    """Our error for one of apsw's. `system_errno` is the errno behind an I/O error, 0 when unknown."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, apsw.IOError) and system_errno:
        return from_os(OSError(system_errno, said), path)
    return _MEANINGS.get(type(error), _failed)(path, said)


def from_os(error: OSError, path: Path) -> StoreError:
    """Our error for one of the operating system's."""
    said = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return StoreFull(f"no space left for {path} ({said})")
    if error.errno in _REFUSED:
        return StoreReadOnly(f"{path}: {said}")
    return StoreFailed(f"{path}: {said}")


def _system_errno(connection: apsw.Connection | None) -> int:
    if connection is None:
        return 0
    try:
        return connection.system_errno
    except apsw.Error:  # the connection itself is gone, so there is no errno to tell
        return 0
