"""Whether a container really has the limits its job asked for: nothing of a job runs before this says so.

`guest/canary.py` reports from inside, the kernel's cgroup files speak for the host, `compare` is pure. A difference is
our fault (`SandboxFault`), never a verdict: the arguments said one thing and the kernel did another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import policy
from sandbox.api import Job, SandboxFault
from sandbox.cgroups import UNIFIED, Group

PROGRAM = Path(__file__).parent / "guest" / "canary.py"
REPORT_S = 20.0
"""Longest from the start to a complete report; reaching it is a fault."""
REPORT_BYTES = 256 << 10
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
RLIMITS = {
    "nofile": "Max open files",
    "core": "Max core file size",
    "fsize": "Max file size",
    "memlock": "Max locked memory",
}
DEVICES = frozenset(
    "null zero full random urandom tty console ptmx pts shm mqueue fd stdin stdout stderr core".split()  # noqa: SIM905
)
ENGINE_ENV = frozenset({"HOSTNAME", "PWD"})
"""Names that an engine itself sets; they say `sandbox` and a folder."""
ENGINE_MOUNTS = re.compile(
    r"/|/proc(/.*)?|/sys(/.*)?|/dev(/.*)?|/tmp|/etc/(resolv\.conf|hostname|hosts)|(/usr)?/sbin/docker-init"
)
WRITABLE = re.compile(r"/tmp|/proc(/.*)?|/dev(/.*)?")
"""May be mounted rw: in /proc and /dev the kernel's own permissions hold for an unprivileged uid."""
TUNNELS = frozenset(
    "tunl0 sit0 ip6tnl0 gre0 gretap0 erspan0 ip6gre0 ip_vti0 ip6_vti0".split()  # noqa: SIM905
)
"""A kernel that has loaded a tunnel's module makes its fallback device in every new network namespace: down, without an address,
and nobody inside may bring it up."""
PAGE = 4096


@dataclass(frozen=True)
class Kernel:
    """What the host knows by itself: its own namespaces, and the caps of the cgroups that the process is in."""

    rlimits: Mapping[str, int]
    namespaces: Mapping[str, str]
    devices: tuple[str, ...] = ()
    pids: str = ""
    memory: str = ""
    swap: str | None = None
    """v2: swap alone. v1: memory and swap together. None: this kernel counts no swap, and then caps none."""
    unified: bool = False
    cpus: str = ""
    below: frozenset[str] = frozenset()
    """Where the host itself has something mounted below a folder of the image (a driver's library, say): it comes along,
    read-only."""


def digest() -> str:
    """Identity of the program that reports."""
    return "sha256:" + hashlib.sha256(PROGRAM.read_bytes()).hexdigest()


def compare(job: Job, report: Mapping[str, Any], kernel: Kernel) -> list[str]:
    """One line for each limit that is missing or different; empty when all hold. Raises KeyError, TypeError or
    ValueError for a report that is none."""
    return [
        *_identity(job, report),
        *_rlimits(report["limits"], kernel.rlimits),
        *_mounts(job, report["mounts"], kernel),
        *_surroundings(job, report, kernel),
        *_caps(job, kernel),
    ]


def _identity(job: Job, report: Mapping[str, Any]) -> Iterator[str]:
    status = dict(line.split(":", 1) for line in report["status"].splitlines())
    for name in ("Uid", "Gid"):
        if status[name].split() != [str(job.uid)] * 4:
            yield f"{name.lower()}: {status[name].split()}, not {job.uid}"
    if set(status["Groups"].split()) - {str(job.uid)}:
        yield f"groups: {status['Groups'].split()}"
    for name in CAPABILITIES:
        if int(status[name], 16):
            yield f"capabilities: {name} {status[name].strip()}"
    if status["NoNewPrivs"].strip() != "1":
        yield "no-new-privs: not set"
    if status["Seccomp"].strip() != "2":
        yield f"seccomp: mode {status['Seccomp'].strip()}, not a filter"


def _rlimits(text: str, wanted: Mapping[str, int]) -> Iterator[str]:
    for name, value in wanted.items():
        found = re.search(rf"^{RLIMITS[name]}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
        if found is None or found.groups() != (str(value), str(value)):
            yield f"rlimit {name}: {found.groups() if found else 'not reported'}, not {value}"


def _mounts(job: Job, text: str, kernel: Kernel) -> Iterator[str]:
    limits, seen = job.limits, {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(maxsplit=2)
        seen[left.split()[4]] = (kind, set(left.split()[5].split(",")), options.split(","))  # the topmost counts
    binds = {bind.target: False for bind in job.image.binds} | {m.target: m.writable for m in job.mounts}
    binds[policy.CANARY] = False
    yield from (f"mount {target}: missing" for target in ("/", "/tmp", "/dev/shm", *binds) if target not in seen)
    for point, (fstype, flags, _) in seen.items():
        if point not in binds and point not in kernel.below and not ENGINE_MOUNTS.fullmatch(point):
            yield f"mount {point}: not asked for"
        # runc's own tmpfs above the v1 controllers, root's alone
        allowed = binds.get(point, WRITABLE.fullmatch(point) or (point, fstype) == ("/sys/fs/cgroup", "tmpfs"))
        if "rw" in flags and not allowed:
            yield f"mount {point}: writable"
    for point, size, count in (("/tmp", limits.tmp_bytes, limits.tmp_inodes), ("/dev/shm", limits.shm_bytes, None)):
        if point in seen:
            yield from _tmpfs(point, *seen[point], size, count)


def _tmpfs(point: str, kind: str, flags: set[str], options: list[str], size: int, inodes: int | None) -> Iterator[str]:
    given = dict(option.partition("=")[::2] for option in options)
    if kind != "tmpfs":
        yield f"mount {point}: {kind}, not a tmpfs"
    yield from (f"mount {point}: not {flag}" for flag in ("nosuid", "nodev") if flag not in flags)
    if point == "/tmp" and "noexec" in flags:
        yield "mount /tmp: noexec, and Triton's launcher cannot be mapped"
    if _bytes(given.get("size", "")) != -(-size // PAGE) * PAGE:
        yield f"mount {point}: size {given.get('size', 'without a cap')}, not {size} bytes"
    if inodes is not None and _bytes(given.get("nr_inodes", "")) != inodes:
        yield f"mount {point}: inodes {given.get('nr_inodes', 'without a cap')}, not {inodes}"


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+)([kmg]?)", text)
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else None


def _surroundings(job: Job, report: Mapping[str, Any], kernel: Kernel) -> Iterator[str]:
    interfaces = [line.split(":")[0].strip() for line in report["network"].splitlines()[2:]]
    if "lo" not in interfaces or set(interfaces) - {"lo"} - TUNNELS:
        yield f"network: interfaces {interfaces}"
    for name in NAMESPACES:
        if report["namespaces"][name] == kernel.namespaces[name]:
            yield f"namespace {name}: the host's"
    nodes = {Path(node).relative_to("/dev").parts[0] for node in kernel.devices}
    if extra := set(report["devices"]) - DEVICES - nodes:
        yield f"devices: {', '.join(sorted(extra))}"
    if missing := nodes - set(report["devices"]):
        yield f"devices: without {', '.join(sorted(missing))}"
    wanted = set(policy.environment(job))
    if set(report["environment"]) - ENGINE_ENV != wanted:
        yield f"environment: {', '.join(sorted(set(report['environment']) - ENGINE_ENV ^ wanted))}"
    if report["hostname"] != "sandbox":
        yield "hostname: not 'sandbox'"
    if report["files"] != [0, 1, 2]:
        yield f"open files: {report['files']}"


def _caps(job: Job, kernel: Kernel) -> Iterator[str]:
    limits = job.limits
    if kernel.pids != str(limits.pids):
        yield f"pids cap: {kernel.pids or 'none'}, not {limits.pids}"
    whole = limits.memory_bytes // PAGE * PAGE
    if kernel.memory != str(whole):
        yield f"memory cap: {kernel.memory or 'none'}, not {whole}"
    if kernel.swap not in (None, "0" if kernel.unified else str(whole)):
        yield f"swap cap: {kernel.swap}"
    if limits.cpus and _cpus(kernel.cpus) != set(limits.cpus):
        yield f"cpu set: {kernel.cpus or 'none'}, not {limits.cpus}"


def _cpus(text: str) -> set[int]:
    spans = [part.split("-") for part in text.split(",") if part]
    return {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}


# --- reading and releasing --------------------------------------------------------------------------------------------


def kernel_of(pid: int, job: Job, host: policy.Host) -> Kernel:
    """The caps of the cgroups in which a process really is, on v1, v2 and the hybrid."""
    dirs = Group.of_pid(pid).dirs
    unified = UNIFIED in dirs

    def cap(controller: str, v1: str, v2: str) -> str | None:
        folder = dirs.get(UNIFIED if unified else controller)
        try:
            return (folder / (v2 if unified else v1)).read_text().strip() if folder else None
        except OSError:
            return None

    return Kernel(
        rlimits=policy.resource_limits(job, host),
        namespaces={name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES},
        devices=policy.gpu_nodes(job, host),
        pids=cap("pids", "pids.max", "pids.max") or "",
        memory=cap("memory", "memory.limit_in_bytes", "memory.max") or "",
        swap=cap("memory", "memory.memsw.limit_in_bytes", "memory.swap.max"),
        unified=unified,
        cpus=cap("cpuset", "cpuset.cpus", "cpuset.cpus") or "",
        below=frozenset(_below(job, Path("/proc/self/mountinfo").read_text())),
    )


def _below(job: Job, mountinfo: str) -> Iterator[str]:
    """The host's mount points below the folders of the image, by their names inside."""
    for point in [line.split()[4] for line in mountinfo.splitlines()]:
        for bind in job.image.binds:
            if point.startswith(f"{bind.source}/"):
                yield bind.target + point.removeprefix(str(bind.source))


class Gate:
    """Takes a container's output until its report is complete and true; from then on all of it is the job's."""

    def __init__(self, job: Job, host: policy.Host) -> None:
        self._job, self._host = job, host
        self._sink: Callable[[bytes], None] | None = None
        self._said = b""

    def feed(self, chunk: bytes) -> None:
        """Standard output as it comes. It never counts toward the job's output before the release."""
        if self._sink is not None:
            self._sink(chunk)
        else:
            self._said = (self._said + chunk)[: REPORT_BYTES + 1]

    def open(self, group: Group, pump: Callable[[], None], sink: Callable[[bytes], None]) -> float:
        """Wait for the report, judge it, let the job go; the monotonic time of that. `pump` reads what has come and raises
        SandboxFault when there is nobody left to wait for. Raises SandboxFault: no, a wrong, or a false report."""
        deadline = time.monotonic() + REPORT_S
        while time.monotonic() < deadline:
            pump()
            stopped = [pid for pid in group.pids() if _is_stopped(pid)]
            if stopped and b"\n" in self._said:
                self._judge(stopped)
                self._sink = sink
                began = time.monotonic()
                os.kill(stopped[0], signal.SIGCONT)
                return began
            if len(self._said) > REPORT_BYTES:
                break
        raise SandboxFault(f"{self._job.name}: no report of its limits within {REPORT_S:g} s")

    def _judge(self, stopped: list[int]) -> None:
        line, _, more = self._said.partition(b"\n")
        if more or len(stopped) != 1:
            raise SandboxFault(f"{self._job.name}: more than one report of its limits")
        try:
            kernel = kernel_of(stopped[0], self._job, self._host)
            missing = compare(self._job, json.loads(line), kernel)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            raise SandboxFault(f"{self._job.name}: its report of limits cannot be read: {error!r}") from error
        if missing:
            raise SandboxFault(f"{self._job.name}: limits not in force: {'; '.join(missing)}")


def pump(sources: Mapping[int, Callable[[bytes], None]]) -> bool:
    """Read what has come, waiting for 2 ms at most; whether there was something."""
    poll = select.poll()
    for fd in sources:
        poll.register(fd, select.POLLIN)
    ready = poll.poll(2)
    got = False
    for fd, _ in ready:
        if chunk := os.read(fd, 65536):
            sources[fd](chunk)
            got = True
    return got


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
