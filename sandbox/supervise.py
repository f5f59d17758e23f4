"""One thread per container: it starts it, watches clock and output, kills it, reads the counters, and removes it.

The thread is the container's own watchdog: whoever forgets to wait, the container ends at its wall-clock limit. It
waits on the pidfd of the container's first process, so no request to an engine can hang it or be outlived by the
workload; every other wait has a limit too. It also is the parent of a bubblewrap process: that one dies with the
*thread* that started it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from sandbox.api import Job, Outcome, SandboxFault, Status
from sandbox.capture import CHUNK, Capture
from sandbox.cgroups import Counters, Group
from sandbox.survivors import Unkillable

START_S = 60.0
KILL_S = 15.0
"""SIGKILL to gone. A task stuck in a driver takes longer: that is a fault, and the machine needs a look."""
STRIKE_S = 0.5
"""Between one SIGKILL and the next."""
DRAIN_S = 5.0
END_S = 60.0
"""Longest that collecting and removing may take, all of its own limits together."""
NEAR_CAP = 0.9
"""Of its memory cap. Whoever is killed for memory and never came so near was not killed by its own cap."""


@dataclass(frozen=True)
class Ending:
    """What an engine says at the end, beside the counters."""

    code: int
    """Exit code; 128 + n for a death by signal n, as both engines' init processes report it."""
    oom_flag: bool = False


class Handle(Protocol):
    """One container of one engine. The supervisor's thread makes all calls but those of freeze and thaw."""

    container: str
    began: float
    """Monotonic clock, when the job was let go."""
    group: Group

    def launch(self, stdout: Capture, stderr: Capture) -> int:
        """Start it; the pidfd of its first process. `sources` and `group` are set from then on."""

    @property
    def sources(self) -> Mapping[int, Callable[[bytes], None]]:
        """Descriptors to read, and where each one's bytes go."""

    def freeze(self) -> None:
        """Return when all in it have stopped. Raises FileNotFoundError when it is gone. Any thread may call it."""

    def thaw(self) -> None:
        """Let it run again; nothing to do when it is gone. Any thread may call it."""

    def strike(self) -> None:
        """SIGKILL to all of it; returns at once. Called again while it is not gone: the next rung of `survivors`."""

    def collect(self, counters: Counters) -> Ending:
        """After the end. Raises SandboxFault when it was not the job that ended."""

    def remove(self) -> None:
        """When this returns nothing of it is left; otherwise SandboxFault. Also after a failed launch."""


class Supervised:
    """A `Running` over any engine's handle."""

    def __init__(self, job: Job, handle: Handle) -> None:
        """Returns once it runs. Raises SandboxFault when it cannot be started."""
        self.name = job.name
        self._limits = job.limits
        self._handle = handle
        self._stdout = Capture(job.limits.kept_bytes)
        self._stderr = Capture(job.limits.kept_bytes)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._asked: Status | None = None
        self._struck: Status | None = None
        self._strikes = 0
        self._outcome: Outcome | None = None
        self._fault: SandboxFault | None = None
        self._started, self._ended, self._gone = threading.Event(), threading.Event(), threading.Event()
        self._began = 0.0
        self._wall = 0.0
        self._freezing = threading.Lock()
        self._over = False
        threading.Thread(target=self._life, name=f"watch {job.name}", daemon=True).start()
        if not self._started.wait(START_S):
            self._ask("killed")
            raise SandboxFault(f"{self.name}: not started within {START_S:g} s")
        if self._fault and not self._began:
            raise self._fault

    # --- what callers do ----------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop every process in it. Nothing to do when it has ended."""
        with self._freezing:
            if self._over or self._ended.is_set():
                return
            try:
                self._handle.freeze()
                return
            except FileNotFoundError as error:
                gone = error
        # not under the lock, which its own thread needs to end it
        if not self._ended.wait(KILL_S):
            raise SandboxFault(f"{self.name}: no freezer: {gone}") from gone

    def thaw(self) -> None:
        """Let it run again. Nothing to do when it runs or has ended."""
        with self._freezing:
            self._handle.thaw()

    def poll(self) -> Outcome | None:
        if self._fault:
            raise self._fault
        return self._outcome

    def wait(self, timeout_s: float) -> Outcome:
        if not self._ended.wait(timeout_s):
            self._ask("timeout")
        return self._final()

    def kill(self) -> Outcome:
        if not self._ended.is_set():
            self._ask("killed")
        return self._final()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended.is_set():
            self._ask("killed")
        gone = self._gone.wait(KILL_S + END_S)
        fault = self._fault if gone else SandboxFault(f"{self.name}: not removed within {KILL_S + END_S:g} s")
        if fault and error is None:
            raise fault
        if fault and error is not fault and error is not None:
            error.add_note(f"besides: {fault}")

    def _final(self) -> Outcome:
        if not self._ended.wait(KILL_S + END_S):
            raise SandboxFault(f"{self.name}: did not end within {KILL_S + END_S:g} s after it was killed")
        if self._outcome is None:
            raise self._fault or SandboxFault(f"{self.name}: ended without an outcome")
        return self._outcome

    def _ask(self, reason: Status) -> None:
        self._asked = self._asked or reason
        with contextlib.suppress(OSError):  # it has just ended by itself and closed the descriptor
            os.eventfd_write(self._wake, 1)

    # --- what its thread does -----------------------------------------------------------------------------------------

    def _life(self) -> None:
        try:
            try:
                pidfd = self._handle.launch(self._stdout, self._stderr)
                try:
                    self._began = self._handle.began
                    self._started.set()
                    counters = self._watch(pidfd)
                finally:
                    os.close(pidfd)
                self._outcome = self._conclude(counters)
                self._ended.set()
            finally:
                self._handle.remove()
        except SandboxFault as fault:
            self._fault = fault
        except Exception as error:  # the edge of this thread: handed to whoever waits, as our own failure
            self._fault = SandboxFault(f"{self.name}: {type(error).__name__}: {error}")
            self._fault.__cause__ = error
        finally:
            os.close(self._wake)
            for event in (self._started, self._ended, self._gone):
                event.set()

    def _watch(self, pidfd: int) -> Counters:
        """Until its first process is gone. The counters are read then, before the engine removes them."""
        sources = dict(self._handle.sources)
        poll = select.poll()
        for fd in (pidfd, self._wake, *sources):
            poll.register(fd, select.POLLIN)
        limit = self._began + self._limits.wall_s
        earlier = Counters()
        while True:
            patience = max(0.0, limit - time.monotonic()) if self._struck is None else STRIKE_S
            ready = {fd for fd, _ in poll.poll(patience * 1000 + 1)}
            if pidfd in ready:
                counters = self._handle.group.sample().or_else(earlier)
                self._wall = time.monotonic() - self._began
                self._end_rest()
                self._drain(sources)
                return counters
            for fd in ready & sources.keys():
                if not self._read(fd, sources[fd]):
                    poll.unregister(fd)
                    del sources[fd]
            if self._wake in ready:
                os.eventfd_read(self._wake)
            if self._struck is None and (reason := self._reason(limit)):
                earlier = self._handle.group.sample()
                self._struck = reason
                self._strike()
                limit = time.monotonic() + KILL_S
            elif self._struck and time.monotonic() > limit:
                tried = f"{self._strikes} times SIGKILL, from the second on to its whole cgroup, in {KILL_S:g} s"
                raise Unkillable(self.name, tried, self._handle.group.pids())
            elif self._struck and not ready:
                self._strike()

    def _end_rest(self) -> None:
        """The first process is gone, so the job is over. Whatever is left (bubblewrap's inner init, should somebody have frozen
        the group at this very moment) would hold the output streams open: it dies now, and nobody freezes it any more."""
        with self._freezing:
            self._over = True
            self._strike()

    def _reason(self, limit: float) -> Status | None:
        if max(self._stdout.seen, self._stderr.seen) > self._limits.output_bytes:
            return "output-limit"
        if time.monotonic() >= limit:
            return "timeout"
        return self._asked

    def _strike(self) -> None:
        """Signal first, thaw second: a frozen process dies without running another instruction."""
        self._strikes += 1
        self._handle.strike()
        self._handle.thaw()

    def _read(self, fd: int, sink: Callable[[bytes], None]) -> bool:
        try:
            chunk = os.read(fd, CHUNK)
        except ConnectionResetError:
            chunk = b""
        if chunk:
            sink(chunk)
        return bool(chunk)

    def _drain(self, sources: dict[int, Callable[[bytes], None]]) -> None:
        """What was written before the end. Beyond the cap nobody needs the rest."""
        deadline = time.monotonic() + DRAIN_S
        poll = select.poll()
        for fd in sources:
            poll.register(fd, select.POLLIN)
        while sources and max(self._stdout.seen, self._stderr.seen) <= self._limits.output_bytes:
            if time.monotonic() > deadline:
                return  # a write end was passed on to somebody who lives (the judge's queue, say); all of the job is dead
            for fd, _ in poll.poll(100):
                if not self._read(fd, sources[fd]):
                    poll.unregister(fd)
                    del sources[fd]

    def _conclude(self, counters: Counters) -> Outcome:
        ending = self._handle.collect(counters) if self._struck is None else None
        status = classify(ending, self._struck, counters, over=self._reason(float("inf")) == "output-limit")
        if status == "oom" and by_host(counters, self._limits.memory_bytes):
            peak = f"{counters.memory_peak_bytes} of {self._limits.memory_bytes} bytes at most"
            raise SandboxFault(f"{self.name}: killed for the machine's want of memory, not for its own cap: {peak}")
        code = ending.code if ending else None
        signalled = code is not None and code > 128
        return Outcome(
            status=status,
            exit_code=None if signalled else code,
            signal=code - 128 if code is not None and signalled else None,
            wall_s=self._wall,
            cpu_s=counters.cpu_s,
            memory_peak_bytes=counters.memory_peak_bytes,
            oom_kills=counters.oom_kills,
            pids_refused=counters.pids_refused,
            stdout=self._stdout.captured(),
            stderr=self._stderr.captured(),
            container=self._handle.container,
        )


def classify(ending: Ending | None, struck: Status | None, counters: Counters, *, over: bool = False) -> Status:
    """Counters, the engine's flag and the exit code together; none of them is reliable alone.

    A child killed for memory leaves exit code 0; a flag is missed under load. What we did ourselves comes first,
    except that a container which we killed on request after the kernel had struck is `oom`: that is why its peer went
    silent.
    """
    starved = bool(counters.oom_kills) or (ending is not None and ending.oom_flag)
    code = ending.code if ending else 0
    candidates: tuple[tuple[bool, Status], ...] = (
        (over or struck == "output-limit", "output-limit"),
        (struck == "timeout", "timeout"),
        (starved, "oom"),
        (struck == "killed", "killed"),
        (code != 0 and bool(counters.pids_refused), "pids-limit"),
        (code > 128, "signalled"),
    )
    return next((status for applies, status in candidates if applies), "exited")


def by_host(counters: Counters, cap: int) -> bool:
    """The kernel counts a kill for memory in the victim's cgroup whoever ran out; its own peak tells which. Unknown: no."""
    return counters.memory_peak_bytes is not None and counters.memory_peak_bytes < NEAR_CAP * cap
