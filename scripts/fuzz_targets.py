"""What `scripts/fuzz.py` feeds: one function per strict reader, from bytes to nothing, AssertionError for a finding.

A target states what must hold of any input, with code of its own rather than the reader's. The folder target makes what a guest
could leave behind, and nothing else: every entry is made exclusively, by a plain name, relative to a directory descriptor that was
itself opened without following links; links are made but never followed, and there are no device nodes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from ops import wire
from sandbox import collect as collecting

SMALL = wire.Bounds(size=512, depth=4, text=24, items=32)
CAPS = collecting.Caps(file_bytes=64, total_bytes=128, entries=8, depth=3, name_bytes=24)
SECRET = b"a file of the host"


class Finding(AssertionError):
    """A reader let through, or did, what it must not."""


def must(holds: object, what: str) -> None:
    if not holds:
        raise Finding(what)


def free_descriptor() -> int:
    """The lowest free number: the same before and after, or a descriptor was leaked."""
    fd = os.dup(0)
    os.close(fd)
    return fd


def within(value: Any, bounds: wire.Bounds) -> int:
    """Checks one value by plain recursion; returns how many members and items it holds."""
    if isinstance(value, dict | list):
        must(bounds.depth > 0, "deeper than its bounds")
        inner = list(value.values()) if isinstance(value, dict) else value
        for key in value if isinstance(value, dict) else ():
            within(key, bounds)
        return len(inner) + sum(within(one, bounds._replace(depth=bounds.depth - 1)) for one in inner)
    if isinstance(value, str):
        must(len(value) <= bounds.text, "a text longer than its bounds")
        value.encode()  # a lone surrogate raises
    elif isinstance(value, int):
        must(abs(value) < 1 << 53, "an integer that is not exact everywhere")
    elif isinstance(value, float):
        must(math.isfinite(value), "not finite")
    else:
        must(value is None, "no JSON value")
    return 0


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    must(len({key for key, _ in pairs}) == len(pairs), "a duplicate key was accepted")
    return dict(pairs)


def said(error: Exception) -> None:
    must(str(error).isprintable() and 0 < len(str(error)) < 300, f"not one short line: {error!r}")


def read_json(data: bytes) -> None:
    """Refused in a line, or exactly what Python's own reader says, within bounds, and the same when sent on."""
    try:
        value = wire.read_json(data, SMALL)
    except wire.JsonError as error:
        said(error)
        return
    must(len(data) <= SMALL.size, "longer than its bounds")
    must(within(value, SMALL) <= SMALL.items, "more items than its bounds")
    must(json.loads(data.decode("utf-8"), object_pairs_hook=members) == value, "another value than Python reads")
    must(
        wire.read_json(json.dumps(value).encode(), SMALL._replace(size=1 << 20)) == value, "another value when sent on"
    )


def frames(data: bytes) -> None:
    """One message with descriptors beside it: refused, or one bounded object and no more descriptors than allowed."""
    head = data[:1] or b"\0"
    sent, allowed, long = head[0] & 3, head[0] >> 2 & 3, head[0] & 0x80
    raw = data[1:] + (b" " * wire.MAX_BYTES if long else b"")
    before = free_descriptor()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "rb") as null:
        theirs.setblocking(False)
        socket.send_fds(ours, [raw], [null.fileno()] * sent)
        try:
            message, fds = wire.receive(theirs, max_fds=allowed)
        except wire.WireError as error:
            said(error)
        else:
            must(len(fds) == sent <= allowed, "descriptors that nobody allowed")
            must(isinstance(message, dict), "not an object")
            must(within(message, wire.MESSAGE) <= wire.MESSAGE.items, "more items than its bounds")
            for fd in fds:
                os.close(fd)
    must(free_descriptor() == before, "a descriptor was leaked")


def folder(data: bytes) -> None:
    """A folder as the bytes describe it: all of its plain files, or a refusal; the same with and without openat2."""
    before = free_descriptor()
    base = Path(tempfile.mkdtemp(prefix="assay-fuzz-"))
    try:
        (base / "secret").write_bytes(SECRET)
        (base / "f").mkdir()
        expected = _make(base, data)
        answers = []
        for has in (True, False) if collecting.has_openat2() else (False,):
            with mock.patch.object(collecting, "has_openat2", lambda has=has: has):
                answers.append(_answer(base / "f"))
        must(all(one == answers[0] for one in answers), f"openat2 and component by component disagree: {answers}")
        found = answers[0]
        must(
            (found == expected) if expected is not None else isinstance(found, str),
            f"{expected!r} is read as {found!r}",
        )
        must((base / "secret").read_bytes() == SECRET, "the reader wrote")
    finally:
        shutil.rmtree(base)
    must(free_descriptor() == before, "a descriptor was leaked")


def _answer(path: Path) -> dict[str, bytes] | str:
    try:
        return collecting.collect(path, CAPS)
    except collecting.CollectError as error:
        said(error)
        return str(error)


def _make(base: Path, data: bytes) -> dict[str, bytes] | None:
    """Make what the bytes describe below `base`/f. What must be read from it; None where it must be refused."""
    wanted: dict[str, bytes] = {}
    fit, entries = True, 0
    with contextlib.ExitStack() as stack:
        top = _directory(stack, str(base), None)
        places = [("", _directory(stack, "f", top))]
        for piece in data.split(b"\n")[:24]:
            if len(piece) < 3:
                continue
            at, fd = places[piece[0] % len(places)]
            name, _, content = piece[2:].partition(b":")
            name = name.replace(b"/", b"_").replace(b"\0", b"0")
            if name in (b"", b".", b"..") or len(name) > 255:
                continue
            kind = piece[1] % 8
            try:
                _entry(kind, os.fsdecode(name), content, fd, top)
            except FileExistsError:
                continue
            entries += 1
            path = at + os.fsdecode(name)
            plain = os.fsdecode(name).isprintable() and len(name) <= CAPS.name_bytes
            if kind <= 3:
                wanted[path] = content * (1 + 9 * (kind == 3))
            elif kind == 4:
                places.append((path + "/", _directory(stack, os.fsdecode(name), fd)))
            fit = fit and plain and kind <= 4 and path.count("/") + (2 if kind == 4 else 1) <= CAPS.depth
        size = sum(map(len, wanted.values()))
    if not fit or entries > CAPS.entries or size > CAPS.total_bytes:
        return None
    return None if any(len(raw) > CAPS.file_bytes for raw in wanted.values()) else wanted


def _directory(stack: contextlib.ExitStack, name: str, at: int | None) -> int:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    stack.callback(os.close, fd)
    return fd


def _entry(kind: int, name: str, content: bytes, at: int, top: int) -> None:
    """One new entry `name` of the directory `at`; FileExistsError where there is one."""
    if kind <= 3 or kind == 7:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=at)
        with open(fd, "wb") as file:
            file.write(content * (1 + 9 * (kind == 3)))
            if kind == 7:
                file.truncate(CAPS.file_bytes + 1 + (len(content) << 30))  # sparse
    elif kind == 4:
        os.mkdir(name, 0o755, dir_fd=at)
    elif kind == 5:
        targets = (
            "../secret",
            "..",
            "/proc/self/root/etc/hostname",
            "none",
            os.fsdecode(content.replace(b"\0", b"")) or "a",
        )
        os.symlink(targets[len(content) % len(targets)], name, dir_fd=at)
    elif len(content) % 2:
        os.link("secret", name, src_dir_fd=top, dst_dir_fd=at, follow_symlinks=False)
    else:
        os.mkfifo(name, 0o644, dir_fd=at)
        must(stat.S_ISFIFO(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode), "no pipe was made")


TARGETS: dict[str, Callable[[bytes], None]] = {"json": read_json, "frames": frames, "folder": folder}
SEEDS: dict[str, tuple[bytes, ...]] = {
    "json": (
        b'{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00"], "b": {"c": {}}}',
        b"[[[[]]]]",
        b'{"]]]]": [[[]]], "\\"": "[[[["}',
        b'[9007199254740991, 1e308, "' + b"x" * 24 + b'"]',
        b"[[[[[]]]]]",
        b'{"a": 1, "a": 2}',
        b"[9007199254740992, -1e999, " + b"0," * 31 + b"0]",
        b'{"' + b"x" * 25 + b'": 0}',
        b'{"a": 1, "a": NaN, "b": "\\ud800"}',
    ),
    "frames": (
        b'\x00{"done": 7}',
        b'\x05{"op": "ready", "n": [1, 2]}',
        b'\x81{"a": "\\udcff"}',
        b'\x03{"a": {"b": [0.5]}}',
    ),
    "folder": (
        b"\0\0a:one\n\0\4sub:\n\1\0b:two\n\1\5link:x\n\0\6pipe:",
        b"\0\4a:\n\1\4b:\n\2\4c:\n\2\0x:deep",
        b"\0\0a:1234567\n\0\3b:1234567\n\0\6hard:x\n\0\7sparse:x",
    ),
}
"""Where mutation starts: on both sides of each bound."""
