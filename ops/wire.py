"""The wire between judge and guest, and between host and judge: one strict JSON object per SEQPACKET message, fds beside it.

Standard library only; copied byte for byte into sandbox/guest (a test compares), so both sides speak from one text. A guest is
hostile: whatever arrives is bounded before it is parsed, and anything that is not a finite JSON object is `WireError`. The same
strict reader (`read_json`) serves the host for replies of proposers and files of bundles, each with its own bounds.
"""

from __future__ import annotations

import array
import json
import os
import re
import socket
import time
from typing import Any, NamedTuple, NoReturn

MAX_BYTES = 128 * 1024
"""One message. SEQPACKET keeps boundaries, so a longer one is seen as truncated and refused."""
MAX_FDS = 4


class Bounds(NamedTuple):
    """What one JSON text may hold. The defaults are those of a message."""

    size: int = MAX_BYTES
    """Bytes of the text."""
    depth: int = 8
    """Lists and objects inside one another."""
    text: int = MAX_BYTES
    """Characters of a key or a string."""
    items: int = 16_384
    """Members of objects and items of lists, all together."""


MESSAGE = Bounds()
_MARKS = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


class JsonError(ValueError):
    """The text is no strict JSON, or exceeds its bounds: one short printable line."""


class WireError(Exception):
    """The other side broke the protocol or went away."""


class WireClosed(WireError):
    """The other side closed the connection."""


def _refuse(text: str) -> NoReturn:
    raise JsonError(f"not a finite number: {text[:20]}")


def _finite(text: str) -> float:
    value = float(text)
    return _refuse(text) if value in (float("inf"), float("-inf")) else value


def _exact(text: str) -> int:
    """Integers beyond 2^53 are not numbers to every reader of the log."""
    if len(text) > 17 or abs(int(text)) >= 1 << 53:
        raise JsonError(f"integer of 2^53 or more: {text[:20]}")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"duplicate key {key[:60]!a}")
        seen.add(key)
    return dict(pairs)


def _bound_depth(raw: bytes, limit: int) -> None:
    """Before anything recurses. Brackets inside strings do not count: a `]` in a text must not hide a `[` outside."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return
    level, quoted = 0, False
    for mark in _MARKS.findall(raw):
        if mark == b'"':
            quoted = not quoted
        elif not quoted and mark in (b"[", b"{"):
            level += 1
            if level > limit:
                raise JsonError(f"nested deeper than {limit} levels")
        elif not quoted and mark in (b"]", b"}"):
            level -= 1


def _bound_contents(document: Any, bounds: Bounds) -> None:
    count, level = 0, [document]
    while level:
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                texts = (value,)
            else:
                texts = tuple(value) if isinstance(value, dict) else ()
                below.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
            if any(len(text) > bounds.text for text in texts):
                raise JsonError(f"a text longer than {bounds.text} characters")
        count, level = count + len(below), below
        if count > bounds.items:
            raise JsonError(f"more than {bounds.items} members and items")


def read_json(raw: bytes, bounds: Bounds = MESSAGE) -> Any:
    """The value of one strict JSON text; `JsonError` for whatever Python would forgive or add to JSON.

    UTF-8 only, nothing after the value, no duplicate keys, no NaN or infinity, integers below 2^53, no half characters.
    """
    if len(raw) > bounds.size:
        raise JsonError(f"longer than {bounds.size} bytes")
    _bound_depth(raw, bounds.depth)
    try:
        document = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_exact,
        )
        if b"\\ud" in raw.lower():  # an escape may spell half a character, which no log can store
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise JsonError("a lone surrogate is no text") from None
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error)[:160]) from None
    _bound_contents(document, bounds)
    return document


def decode(raw: bytes) -> dict[str, Any]:
    """One message: a strict JSON object within `MESSAGE`. Raises WireError."""
    try:
        message = read_json(raw)
    except JsonError as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("not an object")
    return message


def clean(value: object, limit: int = 2000) -> str:
    """A claim's text as it may be stored and shown: bounded, one line, nothing that a terminal or a log would stumble over."""
    text = str(value)[:limit].encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)[:limit]


def encode(message: dict[str, Any]) -> bytes:
    raw = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(raw) > MAX_BYTES:
        raise WireError("message too long")
    return raw


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message; raises WireClosed when the other side is gone."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([encode(message)], rights)
    except (BrokenPipeError, ConnectionResetError):
        raise WireClosed("closed") from None


def receive(sock: socket.socket, max_fds: int = 0, spin_until: float | None = None) -> tuple[dict[str, Any], list[int]]:
    """Receive and decode one message and up to `max_fds` file descriptors (the caller closes them). See `receive_raw`."""
    raw, fds = receive_raw(sock, max_fds, spin_until)
    try:
        return decode(raw), fds
    except WireError:
        for fd in fds:
            os.close(fd)
        raise


def receive_raw(sock: socket.socket, max_fds: int = 0, spin_until: float | None = None) -> tuple[bytes, list[int]]:
    """Receive one message, whole but not yet parsed: a clock that runs must not wait for a parser.

    Blocks within the socket's own timeout (TimeoutError). With `spin_until` (a `time.monotonic` deadline) it polls without
    sleeping: microseconds instead of a wake-up, at the price of a core.
    """
    ancillary_bytes = socket.CMSG_SPACE(4 * MAX_FDS) if max_fds else 0
    flags = socket.MSG_CMSG_CLOEXEC | (0 if spin_until is None else socket.MSG_DONTWAIT)
    while True:
        try:
            raw, ancillary, seen, _ = sock.recvmsg(MAX_BYTES + 1, ancillary_bytes, flags)
            break
        except BlockingIOError:
            if spin_until is not None and time.monotonic() > spin_until:
                raise TimeoutError("timed out") from None
        except ConnectionResetError:
            raise WireClosed("closed") from None
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.extend(array.array("i", data[: len(data) - len(data) % 4]))
    try:
        if len(fds) > max_fds or seen & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise WireError("unexpected file descriptors or a truncated message")
        if not raw:
            raise WireClosed("closed")
        return raw, fds
    except WireError:
        for fd in fds:
            os.close(fd)
        raise
