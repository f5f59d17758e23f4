"""What the host puts up around a hostile program: a bundle to spoil, a secret to find, listeners to reach, a link to misuse.

Everything is made by the suite itself, listens on this machine only, and is gone when the stage is left. Nothing of a hostile
program runs here: the host's ends only accept, count and refuse.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ops import wire

LINK_S = 10.0
"""A program has this long to connect and to say all it has to say."""
CALL_S = 10.0
"""The listener's own calls."""
SEND_S = 0.5
"""Longest that one send to a program may block."""


class Listener:
    """A TCP port of the loopback and an abstract Unix socket; counts who comes."""

    def __init__(self) -> None:
        self._visitors, self._ours = [0, 0], 0
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._unix = socket.socket(socket.AF_UNIX)
        self.name = f"assay-check-{os.getpid()}-{id(self)}"
        self._unix.bind("\0" + self.name)
        self._unix.listen()
        self.port = int(self._tcp.getsockname()[1])
        self._threads = [
            threading.Thread(target=self._serve, args=(door, s), daemon=True)
            for door, s in enumerate((self._tcp, self._unix))
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, door: int, server: socket.socket) -> None:
        while True:
            try:
                visitor = server.accept()[0]
            except OSError:
                return
            with visitor:
                self._visitors[door] += 1
                visitor.settimeout(CALL_S)
                with suppress(OSError):
                    visitor.send(b"seen")

    def count(self) -> int:
        """Who has come until now. We come last ourselves, through each door, and wait to be seen: whoever came before was."""
        for family, address in ((socket.AF_INET, ("127.0.0.1", self.port)), (socket.AF_UNIX, "\0" + self.name)):
            with socket.socket(family) as us:
                us.settimeout(CALL_S)
                us.connect(address)
                us.recv(4)
            self._ours += 1
        return sum(self._visitors) - self._ours

    def close(self) -> None:
        for server in (self._tcp, self._unix):
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in self._threads:
            thread.join(5)


class Stage:
    """One program's surroundings, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.canary = f"canary-{os.urandom(8).hex()}"
        self.bundle, self.link, self.trap = folder / "bundle", folder / "link", folder / "trap"
        self.secret = folder / "secret"
        for place, mode in ((self.bundle, 0o777), (self.link, 0o777)):
            place.mkdir()
            place.chmod(mode)  # only the container stands before it
        kernel = self.bundle / "kernel.py"
        kernel.write_text("def kernel(): ...\n")
        kernel.chmod(0o666)
        self.secret.touch(0o600)
        self.secret.write_text(self.canary)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(str(self.link / "s"))
        (self.link / "s").chmod(0o666)
        self._door.listen(1)
        self._door.settimeout(LINK_S)
        self.listener = Listener()
        self.digest = digest(self.bundle)

    def __enter__(self) -> Self:
        os.environ["ASSAY_CHECK_SECRET"] = self.canary
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.environ.pop("ASSAY_CHECK_SECRET", None)
        self._door.close()
        self.listener.close()

    def hear(self) -> list[str]:
        """Read the program's messages until it goes: what each was refused for, or `understood`; `honest` for an honest one."""
        heard: list[str] = []
        with suppress(TimeoutError), self._door.accept()[0] as link:
            link.settimeout(LINK_S)
            while len(heard) < 100:
                try:
                    message, _ = wire.receive(link)
                except wire.WireClosed:
                    break
                except wire.WireError as error:
                    heard.append(f"refused: {error}"[:100])
                else:
                    heard.append("honest" if set(message) == {"honest"} else f"understood {message!r}"[:100])
        return heard

    def offer(self) -> list[str]:
        """Send a megabyte to one that does not read. `full` when our own limit ended it."""
        with suppress(TimeoutError, wire.WireClosed), self._door.accept()[0] as link:
            link.settimeout(SEND_S)
            for _ in range(16):
                try:
                    wire.send(link, {"text": "x" * (64 << 10)})
                except TimeoutError:
                    time.sleep(0.1)
                    return ["full"]
        return []


def digest(folder: Path) -> str:
    """Of names, contents and modes, sha256."""
    found = sorted(folder.rglob("*"))
    facts = [(str(p.relative_to(folder)), p.lstat().st_mode, p.read_bytes() if p.is_file() else b"") for p in found]
    return hashlib.sha256(repr((folder.stat().st_mode, facts)).encode()).hexdigest()
