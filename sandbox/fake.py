"""The public fake: runs a Python callable in a thread in place of each container.

For tests of what lies above the sandbox. It isolates nothing and says so: `describe()` records the engine `fake`, and no
command line offers it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self

from sandbox import policy
from sandbox.api import Captured, Job, Outcome, SandboxFault, Status

Program = Callable[[Job], "int | Outcome"]


class FakeSandbox:
    """`programs` by role: what a container of that role does. An int is an exit code; an Outcome is taken as it is.

    A program that raises SandboxFault stands for a fault of ours; any other exception ends its "process" with exit code 1.
    """

    name: Literal["docker", "bwrap", "fake"] = "fake"

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self._programs = programs
        self.started: list[FakeRunning] = []

    def start(self, job: Job) -> FakeRunning:
        policy.check(job)
        if job.role not in self._programs:
            raise SandboxFault(f"{job.name}: the fake has no program for role {job.role}")
        running = FakeRunning(job, self._programs[job.role])
        self.started.append(running)
        return running

    def run(self, job: Job) -> Outcome:
        with self.start(job) as running:
            return running.wait(job.limits.wall_s)

    def describe(self) -> dict[str, str]:
        return {"engine": "fake", "isolation": "none"}


class FakeRunning:
    """A thread in a container's place. It cannot be killed: an abandoned one runs on, unheard."""

    def __init__(self, job: Job, program: Program) -> None:
        self.name = job.name
        self.history: list[Literal["freeze", "thaw", "kill"]] = []
        self._job = job
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        self._fault: SandboxFault | None = None
        self._began = time.monotonic()
        self._alarm = threading.Timer(job.limits.wall_s, self._end, [self._ours("timeout")])
        self._alarm.daemon = True
        self._alarm.start()
        threading.Thread(target=self._life, args=(program,), name=f"fake {job.name}", daemon=True).start()

    def freeze(self) -> None:
        self.history.append("freeze")

    def thaw(self) -> None:
        self.history.append("thaw")

    def poll(self) -> Outcome | None:
        if self._fault:
            raise self._fault
        return self._outcome

    def wait(self, timeout_s: float) -> Outcome:
        if not self._ended.wait(timeout_s):
            self._end(self._ours("timeout"))
        return self._final()

    def kill(self) -> Outcome:
        self.history.append("kill")
        self._end(self._ours("killed"))
        return self._final()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._ours("killed"))

    def _life(self, program: Program) -> None:
        try:
            said = program(self._job)
        except SandboxFault as fault:
            self._fault = fault
            self._ended.set()
        except Exception as error:  # the edge of the "process": what a container's interpreter would do
            self._end(replace(self._ours("exited"), exit_code=1, stderr=_said(error)))
        else:
            self._end(said if isinstance(said, Outcome) else replace(self._ours("exited"), exit_code=said))

    def _ours(self, status: Status) -> Outcome:
        return Outcome(status=status, container=f"fake-{self.name}")

    def _end(self, outcome: Outcome) -> None:
        """The first end counts."""
        with self._lock:
            if not self._ended.is_set():
                self._outcome = replace(outcome, wall_s=outcome.wall_s or time.monotonic() - self._began)
                self._ended.set()
                self._alarm.cancel()

    def _final(self) -> Outcome:
        if self._outcome is None:
            raise self._fault or SandboxFault(f"{self.name}: ended without an outcome")
        return self._outcome


def _said(error: Exception) -> Captured:
    text = f"{type(error).__name__}: {error}\n".encode()
    return Captured(seen=len(text), head=text)
