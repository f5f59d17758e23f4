"""The `command` provider: any program of the user's proposes, by JSON on stdin and stdout.

The program is trusted (the user chose it, and it runs as the user); what it writes is not, because it usually repeats a
model. So its time and its output are bounded, it runs in a process group of its own that is killed as a whole, no shell
reads its command line, and its reply goes through `runner.customs`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO

from runner import customs, prompt
from runner.exits import UsageError
from runner.providers import Proposal, ProposalError, Question

MAX_STDERR_BYTES = 64 * 1024
KILL_S = 10.0
"""SIGKILL to gone."""


@dataclass(frozen=True)
class Command:
    """Runs `argv` once per proposal."""

    argv: tuple[str, ...]
    timeout_s: float
    name: str = "command"

    def propose(self, question: Question) -> Proposal | None:
        asked = json.dumps({"prompt": prompt.text(question), "context": prompt.context(question)}, allow_nan=False)
        request = asked.encode()
        ran = _run(self.argv, request, self.timeout_s)
        if ran.problem:
            detail = customs.one_line(f"{ran.problem}{ran.complaint}", 500)
            raise ProposalError("provider-timeout" if ran.late else "provider-error", detail, request, ran.out or None)
        try:
            reply = customs.parse_reply(ran.out)
        except customs.CustomsError as error:
            raise ProposalError("bad-reply", str(error), request, ran.out) from None
        return Proposal(reply.source, reply.story, {}, request, ran.out)


def command(line: str | None, timeout_s: float) -> Command:
    """Checks the command line before a run begins."""
    if not line:
        raise UsageError('--provider command needs --command "program arguments"')
    try:
        argv = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"--command: {error}") from None
    if not argv or shutil.which(argv[0]) is None:
        raise UsageError(f"--command: no such program: {argv[0] if argv else line}")
    return Command(argv, timeout_s)


@dataclass(frozen=True)
class _Ran:
    out: bytes
    problem: str = ""
    late: bool = False
    complaint: str = ""


def _run(argv: tuple[str, ...], request: bytes, timeout_s: float) -> _Ran:
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return _Ran(b"", f"{argv[0]} did not start: {error.strerror}")
    streams = _Streams(process, request)
    try:
        ended = streams.pump(time.monotonic() + timeout_s)
    finally:
        _kill(process)
        streams.close()
    complaint = customs.one_line(bytes(streams.err[-2000:]).decode("utf-8", "replace"), 400)
    complaint = f": {complaint}" if complaint else ""
    if streams.flooded:
        return _Ran(b"", f"wrote more than {customs.MAX_REPLY_BYTES} bytes")
    if not ended:
        return _Ran(bytes(streams.out), f"gave no reply within {timeout_s:g} s", True, complaint)
    if process.returncode != 0:
        return _Ran(bytes(streams.out), f"ended with code {process.returncode}", False, complaint)
    return _Ran(bytes(streams.out))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group, also after a good end: a proposer leaves nothing running behind it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nobody can do more
        process.wait(KILL_S)


class _Streams:
    """Feeds stdin and drains stdout and stderr together, so that neither side can block the other."""

    def __init__(self, process: subprocess.Popen[bytes], request: bytes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self.out = bytearray()
        self.err = bytearray()
        self.flooded = False
        self._left = memoryview(request)
        self._selector = selectors.DefaultSelector()
        os.set_blocking(self.stdin.fileno(), False)
        self._selector.register(self.stdin, selectors.EVENT_WRITE)
        self._selector.register(self.stdout, selectors.EVENT_READ)

        self._selector.register(self.stderr, selectors.EVENT_READ)

    def pump(self, deadline: float) -> bool:
        """Until stdout is closed and the program has ended. False at the deadline or above the cap."""
        while self.stdout in self._watched():
            left = deadline - time.monotonic()
            if left <= 0 or self.flooded:
                return False
            for key, _ in self._selector.select(left):
                self._write() if key.fileobj is self.stdin else self._read(key.fileobj)  # type: ignore[arg-type]
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        self._selector.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _watched(self) -> list[object]:
        return [key.fileobj for key in self._selector.get_map().values()]

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self.stdin.fileno(), self._left[:65536]) :]
        except BrokenPipeError:
            self._left = self._left[:0]  # it does not want to read all: its right
        if not self._left:
            self._selector.unregister(self.stdin)
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()

    def _read(self, stream: IO[bytes]) -> None:
        piece = os.read(stream.fileno(), 65536)
        if not piece:
            self._selector.unregister(stream)
            return
        kept, cap = (self.out, customs.MAX_REPLY_BYTES) if stream is self.stdout else (self.err, MAX_STDERR_BYTES)
        kept.extend(piece)
        if stream is self.stdout:
            self.flooded = len(kept) > cap
        elif len(kept) > cap:
            del kept[:-cap]
