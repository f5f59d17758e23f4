"""The wire between judge and guest, and between host and judge: one strict JSON object per SEQPACKET message, fds beside it.

Standard library only; copied byte for byte into sandbox/guest (a test compares), so both sides speak from one text. A guest is
hostile: whatever arrives is bounded before it is parsed, and anything that is not a flat, finite JSON object is `WireError`.
"""

from __future__ import annotations

import array
import json
import os
import socket
import time
from typing import Any, NoReturn

MAX_BYTES = 128 * 1024
"""One message. SEQPACKET keeps boundaries, so a longer one is seen as truncated and refused."""
MAX_DEPTH = 8
MAX_FDS = 4


class WireError(Exception):
    """The other side broke the protocol or went away."""


class WireClosed(WireError):
    """The other side closed the connection."""


def _refuse(text: str) -> NoReturn:
    raise WireError(f"not a finite number: {text}")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise WireError(f"not a finite number: {text[:20]}")
    return value


def _exact(text: str) -> int:
    """Integers beyond 2^53 are not numbers to every reader of the log."""
    if len(text) > 17 or abs(int(text)) >= 1 << 53:
        raise WireError("integer too large")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise WireError("duplicate key")
    return out


def _depth(raw: bytes) -> int:
    """Deepest nesting, counted without parsing (brackets inside strings count too: an upper bound)."""
    deepest = level = 0
    for byte in raw:
        if byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    return deepest


def decode(raw: bytes) -> dict[str, Any]:
    """Strict JSON: an object, no duplicate keys, no NaN or infinity, bounded depth and size."""
    if len(raw) > MAX_BYTES:
        raise WireError("message too long")
    if _depth(raw) > MAX_DEPTH:
        raise WireError("nested too deep")
    try:
        message = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_exact,
        )
        if b"\\ud" in raw.lower():  # an escape may spell half a character, which no log can store
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
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
