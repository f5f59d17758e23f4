"""A blank: a judge's or a guest's container that has imported torch and triton and does not know yet what for.

Importing takes seconds, and nothing in it depends on a bundle or a candidate, so it may happen before either is known. A blank
says that it is ready by connecting to a socket that only it can see; then it waits for its first order. It holds no GPU context
and has no source. It serves one arm of one unit and is destroyed.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from runner.jobs import GUEST_UID, JUDGE_UID, Jobs
from runner.workspace import workspace
from sandbox.api import Running, Sandbox, SandboxFault

START_S = 120.0
"""A container has this long to import torch and connect."""
POLL_S = 0.1
_CREDENTIALS = struct.Struct("3i")

Role = Literal["judge", "guest"]


@dataclass
class Blank:
    """One container and its private folders. Closing it destroys it and removes them."""

    id: str
    """Random: it names the folders, which a guest can read in its mount table; no other name of ours is in there."""
    role: Role
    running: Running
    place: Path
    """What it sees as `/bundle` or `/task`, read-only: empty until we put something there."""
    born: float
    _door: socket.socket
    _stack: ExitStack
    _sock: socket.socket | None = field(default=None)

    @property
    def warm(self) -> bool:
        """Whether it is ready now, without waiting."""
        if self._sock is None and select.select([self._door], [], [], 0)[0]:
            self.ready(POLL_S)
        return self._sock is not None

    def ready(self, timeout_s: float = START_S) -> socket.socket:
        """Its socket, once it has imported all and connected. Nobody else can connect afterwards. SandboxFault when it does not
        come in time or ends: no candidate's source exists in it, so the failure is ours."""
        if self._sock is not None:
            return self._sock
        deadline = time.monotonic() + timeout_s
        self._door.settimeout(POLL_S)
        while self._sock is None:
            if time.monotonic() > deadline:
                raise SandboxFault(f"{self.role}: not ready within {timeout_s:g} s")
            try:
                sock, _ = self._door.accept()
            except TimeoutError:
                ended = self.running.poll()
                if ended is not None:
                    raise SandboxFault(
                        f"{self.role}: ended before it was ready ({ended.status} {ended.exit_code}): "
                        f"{ended.stderr.text()[-1500:]}"
                    ) from None
                continue
            self._stack.callback(sock.close)
            uid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
            if uid != _uid(self.role):  # not ours: turned away, and no reason to stop
                sock.close()
                continue
            self._sock = sock
            self._door.close()
        return self._sock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def close(self) -> None:
        self._stack.close()


def start(sandbox: Sandbox, jobs: Jobs, role: Role, idle_s: float = 0.0) -> Blank:
    """Start one; returns while it imports. It may wait `idle_s` longer than a unit lasts before its wall clock ends it."""
    with ExitStack() as stack:
        folder = stack.enter_context(workspace())
        name = secrets.token_hex(8)
        link, place = folder / "links" / name, folder / "arms" / name
        for path in (link, place):
            path.parent.mkdir(mode=0o711, exist_ok=True)
            path.mkdir(mode=0o755)
        door = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        door.bind(str(link / "s"))
        os.chown(link / "s", _uid(role), -1)
        os.chmod(link / "s", 0o600)
        door.listen(1)
        job = jobs.blank(role, name, link, place, idle_s)
        running = stack.enter_context(sandbox.start(job))
        return Blank(name, role, running, place, time.monotonic(), door, stack.pop_all())


def _uid(role: Role) -> int:
    return JUDGE_UID if role == "judge" else GUEST_UID
