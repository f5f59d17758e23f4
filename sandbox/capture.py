"""A container's output in bounded memory: how much was written, its head and its tail.

Whatever a candidate prints, the host keeps at most `2 * kept_bytes` of each stream and only counts the rest; the
supervisor kills the container at the first byte above its cap.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox.api import Captured

CHUNK = 64 << 10
"""Read at most this much at once."""


class Capture:
    """One stream. Fed by one thread."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept = kept_bytes
        self._head = b""
        self._tail = b""
        self.seen = 0

    def feed(self, chunk: bytes) -> None:
        """Count it; keep what belongs to the head or the tail."""
        self.seen += len(chunk)
        room = self._kept - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk and self._kept:
            self._tail = (self._tail + chunk)[-self._kept :]

    def captured(self) -> Captured:
        return Captured(seen=self.seen, head=self._head, tail=self._tail)


class Frames:
    """Splits Docker's attach stream (an 8-byte header before each piece: stream number, length) without collecting
    pieces."""

    HEADER = 8

    def __init__(self, sinks: dict[int, Callable[[bytes], None]]) -> None:
        self._sinks = sinks
        self._header = b""
        self._left = 0
        self._sink: Callable[[bytes], None] = lambda _: None

    def feed(self, data: bytes) -> None:
        while data:
            if not self._left:
                take = self.HEADER - len(self._header)
                self._header, data = self._header + data[:take], data[take:]
                if len(self._header) < self.HEADER:
                    return
                self._sink = self._sinks[self._header[0]]
                self._left = int.from_bytes(self._header[4:], "big")
                self._header = b""
                continue
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            self._sink(piece)
