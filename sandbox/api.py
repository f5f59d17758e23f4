"""The trust boundary: one job in one container, and what the host saw of it from outside.

Theory of operation
-------------------
The host (root, no torch) starts three kinds of containers, all by the same restrictions:

    judge      ours. Holds inputs, expected outputs and the clock. Never runs a candidate.
    guest      theirs. The candidate and a thin shim. Everything it says is a claim. Used once, then destroyed.
    build      theirs. Imports the candidate to see whether it builds. The same restrictions as a guest, no GPU.

A container gets: no network, no capabilities, no new privileges, a read-only root, a non-root uid, its own seccomp filter, an
allow-listed environment, read-only binds, one private tmpfs (exec: Triton maps its launcher stub from there), and caps on
processes, memory, CPU set, file size, open files and output. Nothing else: each further permission is a field of `Job`.

An `Outcome` says only what was seen from outside: exit code or signal, counters of the kernel, bytes seen and kept, times by
the host's clock. What a container prints is kept as bytes and never believed.

Two failures, two types. `SandboxFault` is *our* failure (engine gone, mount failed): it never counts against a candidate and
never promotes one. Everything a candidate can cause is a status of an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from images.api import Image


class SandboxError(Exception):
    """Base of what this package raises."""


class SandboxFault(SandboxError):
    """The sandbox itself failed: engine, cgroup, mount. About us; retried at most twice, never a verdict."""


class SandboxUnavailable(SandboxError):
    """This host offers no engine of the asked kind. The message says what to install."""


Status = Literal[
    "exited",  # ended by itself; `exit_code` says how
    "signalled",  # ended by a signal that we did not send
    "timeout",  # wall-clock limit reached; we killed it
    "oom",  # the kernel's out-of-memory killer struck inside its cgroup
    "pids-limit",  # ended non-zero after its process limit was hit
    "output-limit",  # wrote more than its output cap; we killed it
    "killed",  # we killed it because the caller asked
]


@dataclass(frozen=True)
class Limits:
    """Caps on one container. Deny by default: every number is finite."""

    wall_s: float = 60.0
    memory_bytes: int = 4 << 30
    """RAM, with swap off."""
    pids: int = 256
    cpus: tuple[int, ...] = ()
    """CPU set, by number; empty means all of the host's."""
    file_bytes: int = 512 << 20
    """RLIMIT_FSIZE. It also caps a memfd's ftruncate: the judge needs room for its tensors."""
    open_files: int = 1024
    tmp_bytes: int = 256 << 20
    tmp_inodes: int = 16384
    shm_bytes: int = 64 << 20
    output_bytes: int = 1 << 20
    """Each of stdout and stderr; the first byte above kills the container."""
    kept_bytes: int = 64 << 10
    """Of each stream, this many bytes of the head and of the tail are kept."""


@dataclass(frozen=True)
class Mount:
    """A host folder inside the container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Job:
    """What to run, and with what. The only input of the container arguments (`sandbox.policy`)."""

    name: str
    """Unique: `assay-<unit>-<arm>`; container name and label."""
    role: Literal["judge", "guest", "build"]
    argv: tuple[str, ...]
    """Arguments after the image's interpreter: `("-I", "/shim/main.py", ...)`."""
    image: Image
    env: Mapping[str, str] = field(default_factory=dict)
    """Only names on `policy.ALLOWED_ENV`; anything else is refused."""
    mounts: tuple[Mount, ...] = ()
    limits: Limits = field(default_factory=Limits)
    uid: int = 65534
    gpu: str | None = None
    """UUID of the one GPU it may see; None: no device node at all."""


@dataclass(frozen=True)
class Captured:
    """One output stream: how much was written, and the head and tail that were kept."""

    seen: int = 0
    head: bytes = b""
    tail: bytes = b""

    def text(self) -> str:
        """For people: undecodable bytes and control characters escaped, the gap marked."""
        gap = self.seen - len(self.head) - len(self.tail)
        middle = f"\n[... {gap} bytes not kept ...]\n" if gap > 0 else ""
        raw = self.head.decode("utf-8", "backslashreplace") + middle + self.tail.decode("utf-8", "backslashreplace")
        return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in raw)


@dataclass(frozen=True)
class Outcome:
    """How a container ended, as seen from outside."""

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    wall_s: float = 0.0
    cpu_s: float | None = None
    """From the cgroup; None where the host offers no counter."""
    memory_peak_bytes: int | None = None
    oom_kills: int | None = None
    pids_refused: int | None = None
    """How often the process limit said no."""
    stdout: Captured = field(default_factory=Captured)
    stderr: Captured = field(default_factory=Captured)
    container: str = ""
    """The engine's id, for the log."""

    def evidence(self) -> dict[str, object]:
        """Everything but the streams, for an event."""
        return {k: v for k, v in self.__dict__.items() if k not in ("stdout", "stderr") and v is not None}


class Running(Protocol):
    """A started container. Leaving the `with` block destroys it and everything in it."""

    name: str

    def freeze(self) -> None:
        """Stop every process in it (cgroup freezer). It returns when they are stopped. Fault when it cannot."""

    def thaw(self) -> None: ...

    def poll(self) -> Outcome | None:
        """None while it runs."""

    def wait(self, timeout_s: float) -> Outcome:
        """Wait until it ends by itself or by a limit; after `timeout_s` kill it (status `timeout`)."""

    def kill(self) -> Outcome:
        """End it and all in it now; idempotent. The outcome is `killed` unless it had ended before."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """An engine that starts jobs. Docker, bubblewrap, and the public fake implement it."""

    name: Literal["docker", "bwrap", "fake"]

    def start(self, job: Job) -> Running:
        """Start and return at once. The job's own wall clock starts here and kills it, whoever forgets to wait."""

    def run(self, job: Job) -> Outcome:
        """Start, wait to the job's wall limit, destroy."""

    def describe(self) -> dict[str, str]:
        """What this engine is and enforces here (version, cgroup kind, freezer, seccomp digest); goes into the log."""
