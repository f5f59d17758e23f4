"""Bodies too large for an event: files named by the SHA-256 of their bytes, durable before an event may name them.

    home/blobs/sha256/<first 2 hex>/<other 62 hex>     0444, never changed
    home/blobs/tmp/                                    being written; what a killed process leaves here is harmless

A new blob is written under a temporary name, synced, renamed, and its directories are synced, in this order. Reading
hashes again: a damaged blob is an error, never data.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from eventstore.errors import BadInput, BlobCorrupt, BlobMissing, StoreReadOnly
from eventstore.files import make_durable_dir, sync_dir
from eventstore.translate import translated

MAX_BLOB = 256 * 1024 * 1024
"""Bytes of one blob."""
CHUNK = 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Blobs:
    """The blobs of one home."""

    def __init__(self, home: Path, *, read_only: bool = False, max_bytes: int = MAX_BLOB) -> None:
        self.root = home.absolute() / "blobs"
        self.read_only = read_only
        self.max_bytes = max_bytes

    def put(self, body: bytes) -> str:
        """Store the bytes and return "sha256:<hex>" once they are durable; storing them again is harmless.

        Raises BadInput when larger than `max_bytes`, StoreFull, StoreReadOnly.
        """
        return self._store([body])

    def put_file(self, path: Path) -> str:
        """`put` of a regular file's bytes, without holding them in memory. Symbolic links and devices are BadInput."""
        try:
            file = open(path, "rb", opener=_open_safely)  # noqa: SIM115 (closed below; here only its errors are ours)
        except OSError as error:
            raise BadInput(f"{path} cannot be stored as a blob: {error.strerror}") from error
        with file:
            return self._store(_chunks(file))

    def get(self, digest: str) -> bytes:
        """The bytes of a blob. Raises BlobMissing, BlobCorrupt, BadInput for what is no digest."""
        path = self.path(digest)
        with translated(path):
            try:
                body = path.read_bytes() if path.stat().st_size <= self.max_bytes else None
            except FileNotFoundError:
                raise BlobMissing(digest, "is not stored") from None
        if body is None or _digest([body]) != digest:
            raise BlobCorrupt(digest, "does not hash to its name")
        return body

    def has(self, digest: str) -> bool:
        """Whether a blob of that name is stored; its bytes are not looked at."""
        return self.path(digest).is_file()

    def path(self, digest: str) -> Path:
        """Where the blob stands, or would."""
        if not _DIGEST.fullmatch(digest):
            raise BadInput(f"{digest[:80]!r} is not sha256: and 64 hex digits")
        return self.root / "sha256" / digest[7:9] / digest[9:]

    def _store(self, chunks: Iterable[bytes]) -> str:
        if self.read_only:
            raise StoreReadOnly(f"{self.root} was opened for reading only")
        with translated(self.root):
            make_durable_dir(self.root / "tmp")
            fd, name = tempfile.mkstemp(dir=self.root / "tmp")
            temporary = Path(name)
            try:
                with open(fd, "wb") as file:
                    digest = _digest(self._copied(chunks, file))
                    os.fchmod(file.fileno(), 0o444)
                    file.flush()
                    os.fsync(file.fileno())
                self._install(temporary, self.path(digest))
            finally:
                temporary.unlink(missing_ok=True)
            return digest

    def _copied(self, chunks: Iterable[bytes], file: BinaryIO) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self.max_bytes:
                raise BadInput(f"a blob of more than {self.max_bytes} bytes is not stored")
            file.write(chunk)
            yield chunk

    def _install(self, temporary: Path, path: Path) -> None:
        make_durable_dir(path.parent)
        # also over an existing file: same bytes when that one is sound, a repair when it is damaged
        temporary.rename(path)
        sync_dir(path.parent)
        # another process may have made the directory a moment ago and not synced it yet
        sync_dir(path.parent.parent)


def _open_safely(path: str, flags: int) -> int:
    """An opener for what a stranger may have put there: follows no link, waits for no pipe, takes no device."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _digest(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
