"""bubblewrap as an engine: no daemon, a fraction of Docker's start, runs host images; caps come from our own cgroups.

`bwrap` starts as root and the job drops to a real unprivileged uid by setpriv inside. (`bwrap --uid` would leave it
as the host's root behind a user namespace: it could then read root-only files and the launcher's environment.)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Literal

from sandbox import canary, cgroups, host, policy, seccomp
from sandbox.api import Job, Outcome, SandboxFault, SandboxUnavailable
from sandbox.capture import Capture
from sandbox.cgroups import Counters, Group
from sandbox.supervise import Ending, Supervised

GROUP = "assay."
"""Prefix of our cgroups, `assay.<pid namespace>.<pid>.<start time>.<job>`: a reaper knows whether somebody owns them."""
GONE_S = 10.0
_OURS = re.compile(r"assay\.(\d+)\.(\d+)\.(\d+)\.[A-Za-z0-9][A-Za-z0-9_-]*")


def dead_groups() -> Iterator[tuple[str, Group]]:
    """Cgroups whose runner is gone. A name that is not wholly of our form (a service called assay, say) is a stranger's."""
    boot = host.owner(os.getpid()).split(":")[0]
    for name, group in cgroups.named(GROUP):
        owner = _OURS.fullmatch(name)
        if owner and not host.alive(f"{boot}:{owner[1]}:{owner[2]}:{owner[3]}"):
            yield name, group


class BwrapSandbox:
    """Starts jobs in bubblewrap. Raises SandboxUnavailable where it cannot work."""

    name: Literal["docker", "bwrap", "fake"] = "bwrap"

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise SandboxUnavailable("bubblewrap: run as root (its jobs drop to an unprivileged uid inside)")
        if host.bwrap_path() is None:
            raise SandboxUnavailable("bubblewrap: not found; install it (apt-get install bubblewrap)")
        seccomp.bpf_program()
        cgroups.writable()
        self.reap()

    def start(self, job: Job) -> Supervised:
        job = host.settled(job)
        # what it refuses is refused here, not in a thread
        policy.bwrap_argv(job, host.current(), parent=0, groups=(), seccomp_fd=0, status_fd=0)
        return Supervised(job, BwrapHandle(job))

    def run(self, job: Job) -> Outcome:
        with self.start(job) as running:
            return running.wait(job.limits.wall_s)

    def describe(self) -> dict[str, str]:
        return {
            "engine": "bwrap",
            "version": self._version,
            "cgroup": cgroups.kind(),
            "controllers": ",".join(cgroups.writable()),
            "freezer": cgroups.freezer(),
            "seccomp": seccomp.digest(),
            "canary": canary.digest(),
            "tmp_inodes": "capped",
        }

    def reap(self) -> list[str]:
        """Remove what a killed runner left: its cgroups (its processes died with it). The names of what was removed."""
        reaped = []
        for name, group in dead_groups():
            group.remove()
            reaped.append(name)
        return reaped

    @cached_property
    def _version(self) -> str:
        said = subprocess.run(
            [host.bwrap_path() or "bwrap", "--version"], capture_output=True, text=True, timeout=10, check=True
        )
        return said.stdout.strip().rpartition(" ")[2]


class BwrapHandle:
    """One bubblewrap process and its cgroups."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._status = b""
        self._struck = False
        self._open: list[int] = []
        self.container = ""
        self.began = 0.0
        self.group = Group({})
        self.sources: Mapping[int, Callable[[bytes], None]] = {}

    def launch(self, stdout: Capture, stderr: Capture) -> int:
        _, space, pid, started = host.owner(os.getpid()).split(":")
        self.group = Group.create(f"{GROUP}{space}.{pid}.{started}.{self._job.name}", self._job.limits)
        reads, writes = zip(*(os.pipe2(os.O_CLOEXEC) for _ in range(3)), strict=True)
        program = seccomp.program_fd()
        self._open += reads
        here = host.current()
        gate = canary.Gate(self._job, here)
        try:
            self._process = subprocess.Popen(
                policy.bwrap_argv(
                    self._job,
                    here,
                    parent=os.getpid(),
                    groups=tuple(map(str, self.group.paths())),
                    seccomp_fd=program,
                    status_fd=writes[2],
                ),
                stdin=subprocess.DEVNULL,
                stdout=writes[0],
                stderr=writes[1],
                pass_fds=(program, writes[2]),
                env={},
                cwd="/",
                start_new_session=True,
            )
        finally:
            for fd in (program, *writes):
                os.close(fd)
        self.container = f"bwrap-{self._process.pid}"
        self.sources = dict(zip(reads, (gate.feed, self._stderr_feed(stderr), self._status_feed), strict=True))
        self.began = gate.open(self.group, self._pump, stdout.feed)
        return os.pidfd_open(self._process.pid)

    def _pump(self) -> None:
        """Read what has come. Raises SandboxFault when it ended before its limits were known."""
        assert self._process is not None
        if not canary.pump(self.sources) and (code := self._process.poll()) is not None:
            raise self._unstarted(code)

    def _stderr_feed(self, capture: Capture) -> Callable[[bytes], None]:
        self._stderr = capture
        return capture.feed

    def _status_feed(self, chunk: bytes) -> None:
        self._status = (self._status + chunk)[:4096]

    def freeze(self) -> None:
        self.group.freeze()

    def thaw(self) -> None:
        self.group.thaw()

    def strike(self) -> None:
        """First all but bwrap itself: it then reaps its child (the namespace's init) and ends. The second time, all."""
        assert self._process is not None
        inside = self.group.pids() - {self._process.pid}
        if self._struck or not inside:
            self.group.strike()
            self._process.kill()  # it may not have joined yet
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._struck = True

    def collect(self, counters: Counters) -> Ending:
        """bwrap reports an exit code only of a job that it really started: without one, setting up failed."""
        assert self._process is not None
        code = self._process.wait(GONE_S)
        for line in self._status.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                said = json.loads(line)
                if isinstance(said, dict) and isinstance(said.get("exit-code"), int):
                    return Ending(said["exit-code"])
        if counters.oom_kills:  # the kernel took bwrap's own process
            return Ending(128 + signal.SIGKILL)
        raise self._unstarted(code)

    def _unstarted(self, code: int) -> SandboxFault:
        head = self._stderr.captured().head.decode("utf-8", "backslashreplace").strip().splitlines()
        return SandboxFault(
            f"{self._job.name}: bubblewrap could not start it (code {code}): {head[0] if head else 'no message'}"
        )

    def remove(self) -> None:
        try:
            self.group.remove()
            if self._process:
                self._process.wait(GONE_S)
        except subprocess.TimeoutExpired as error:
            raise SandboxFault(f"{self._job.name}: bubblewrap survives SIGKILL") from error
        finally:
            for fd in self._open:
                os.close(fd)
            self._open.clear()
