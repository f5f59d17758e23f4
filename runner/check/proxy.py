"""A door before the Docker daemon that passes everything on, and closes the connection on which a certain request comes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlparse

from images.engine import SOCKET

LINK_S = 120.0
"""No end of it waits longer for anybody."""


class Resetting:
    """Listens at `path` while the `with` block lasts. A connection whose request line holds `word` is closed at once."""

    def __init__(self, path: Path, word: bytes) -> None:
        self.resets = 0
        self._word = word
        self._daemon = urlparse(os.environ.get("DOCKER_HOST") or SOCKET).path
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen()
        self._door.settimeout(LINK_S)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(5)
        for link in self._open:
            _end(link)
        for thread in self._threads[1:]:
            thread.join(5)
        for link in (*self._open, self._door):
            link.close()

    def _begin(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._door.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            self._open += [near, far]
            for link in (near, far):
                link.settimeout(LINK_S)
            far.connect(self._daemon)
            self._begin(self._pass, near, far, True)
            self._begin(self._pass, far, near, False)

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        try:
            while chunk := source.recv(1 << 16):
                if asks and self._word in chunk.split(b"\r\n", 1)[0]:
                    self.resets += 1
                    break
                target.sendall(chunk)
        except OSError:
            pass
        if asks:
            _end(source)
        _end(target)


def _end(link: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was faster
        link.shutdown(socket.SHUT_RDWR)
