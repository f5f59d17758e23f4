"""What an image holds, seen from outside: every entry of its root filesystem, hashed by the host.

The engine streams the filesystem of a container that is made without network and is never started, so nothing inside the image
has a say in it. An entry is one line of text: kind, mode, owner, and the SHA-256 of a file or the target of a link. Times are
left out, and so is what an engine puts into every container.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from images import steps
from images.api import ImageFault

if TYPE_CHECKING:
    import docker

ENGINES = (".dockerenv", "dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab")
"""What an engine puts into every container, by name or as a folder."""
KEPT_BYTES = 16 * 2**20
"""Largest file whose text can be asked for."""


@dataclass(frozen=True)
class Contents:
    """One reading of an image."""

    entries: Mapping[str, str]
    """Path without a leading slash -> what is there."""
    texts: Mapping[str, str]
    """The files that were asked for and are there."""


def read(client: docker.APIClient, image: str, texts: tuple[str, ...] = ()) -> Contents:
    """Hash everything in an image; about 10 s for each gigabyte. Raises ImageFault when the engine's stream breaks off."""
    container = steps.create(client, image, ["true"])
    try:
        return of_tar(client.export(container), texts)
    except (tarfile.TarError, EOFError) as error:
        raise ImageFault(f"the engine's copy of image {image[:19]} broke off: {error}") from error
    finally:
        client.remove_container(container, force=True, v=True)


def of_tar(pieces: Iterable[bytes], texts: tuple[str, ...] = ()) -> Contents:
    """The same of a tar that comes in pieces."""
    entries, found = {}, {}
    with tarfile.open(fileobj=io.BufferedReader(_Pieces(iter(pieces)), 2**20), mode="r|") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if name in ENGINES or name.startswith(("dev/", "proc/", "sys/")):
                continue
            text = None
            if member.isreg() and name in texts and member.size <= KEPT_BYTES:
                file = tar.extractfile(member)
                assert file is not None
                text = file.read()
                found[name] = text.decode("utf-8", "backslashreplace")
            entries[name] = _line(tar, member, text)
    return Contents(entries, found)


def differences(recorded: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """One line for each path that is not as it was recorded, in the order of paths."""
    lines = []
    for path in sorted({*recorded, *found}):
        if path not in found:
            lines.append(f"missing: /{path}")
        elif path not in recorded:
            lines.append(f"added: /{path}")
        elif recorded[path] != found[path]:
            lines.append(f"changed: /{path}")
    return lines


def _line(tar: tarfile.TarFile, member: tarfile.TarInfo, text: bytes | None) -> str:
    owner = f"{member.mode:o} {member.uid}:{member.gid}"
    if member.issym():
        return f"link {owner} {member.linkname}"
    if member.islnk():
        return f"same {owner} {member.linkname}"
    if member.isdir():
        return f"folder {owner}"
    if not member.isreg():
        return f"special {owner} {member.type!r} {member.devmajor}:{member.devminor}"
    if text is not None:
        return f"file {owner} {hashlib.sha256(text).hexdigest()}"
    file = tar.extractfile(member)
    assert file is not None
    digest = hashlib.sha256()
    while piece := file.read(2**20):
        digest.update(piece)
    return f"file {owner} {digest.hexdigest()}"


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file that can be read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
