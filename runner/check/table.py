"""The table: which program tries what, and which word of `sandbox.status` must come of it. Data only.

Numbers in `case` are those of the list of hostile programs that the suite was made from; rows that this suite cannot run here say
why in `needs`, and are reported as not run, never as passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.check import judging
from runner.check.judging import NO_CALL, Judge
from sandbox.status import RunStatus

MIB = 1 << 20
LIMITS: Mapping[str, Any] = {
    "wall_s": 60.0,
    "memory_bytes": 256 * MIB,
    "pids": 64,
    "tmp_bytes": 32 * MIB,
    "shm_bytes": 16 * MIB,
    "file_bytes": 128 * MIB,
}
SHORT = {"wall_s": 2.0}
GPU = "needs an NVIDIA GPU, and `--gpu`"
NO_ROW = "needs an NVIDIA GPU, and no row for it exists yet; tests/conformance/test_cheats.py has it on the CPU"
BY_HAND = "needs a whole measurement with judge and torch; docs/evidence/breakout-2026-12-07.md tells of one"
NO_DEADLOCK = "needs an NVIDIA GPU, and no row for it exists yet; gpu-endless is its nearest"
MEASUREMENT = "needs a whole measurement with judge and torch; tests/conformance/test_cheats.py runs it"


@dataclass(frozen=True)
class Row:
    """One hostile program, or one that cannot be run here."""

    name: str
    """Also names the program: `programs/<name with underscores>.py`."""
    case: str
    tries: str
    expected: frozenset[RunStatus]
    judge: Judge = judging.nothing
    limits: Mapping[str, Any] = field(default_factory=dict)
    role: Literal["guest", "build"] = "guest"
    besides: Literal["", "listener", "link", "unread link", "neighbour", "secret", "trap"] = ""
    """What the host puts up beside it."""
    needs: str = ""
    """Why it is not run here; empty when it is."""


def one(status: str) -> frozenset[RunStatus]:
    return frozenset({RunStatus(status)})


OK, TIMEOUT, OOM, PIDS = one("ok"), one("timeout"), one("oom_host"), one("pids_limit")
DISK, OUTPUT, FAILED, PROTOCOL = one("disk_limit"), one("output_limit"), one("runtime_error"), one("protocol_error")

PROCESSES = (
    Row("fork-bomb", "1", "forks without end", PIDS | TIMEOUT, judging.forks_refused),
    Row("thread-bomb", "2", "starts 100 000 threads", PIDS),
    Row("daemon", "3", "leaves 100 deaf daemons and exits well", OK, judging.prints("all well"), {"pids": 256}),
    Row("holds-output", "5", "exits while a grandchild holds its output open", OK, judging.prints("done")),
    Row("deaf-loop", "6", "ignores every signal and loops", TIMEOUT, limits=SHORT),
    Row("kill-all", "8", "kills process 1 and everyone it can reach", OK, judging.prints("alive")),
    Row("sleeper", "9", "sleeps for ever", TIMEOUT, judging.idle_clock, SHORT),
    Row("busy", "10", "computes for ever", TIMEOUT, judging.busy_clock, SHORT),
    Row("zombies", "11", "never waits for its children", PIDS),
    Row("namespaces", "12", "makes and enters namespaces", OK, judging.refused(NO_CALL, 20)),
    Row("clocks", "14", "sets the machine's clock", OK, judging.host_clock),
    Row("build-endless", "15", "runs other programs without end at its import", TIMEOUT, limits=SHORT, role="build"),
    Row("build-huge", "15", "asks for a constant of 10 GB at its import", OOM, role="build"),
)
MEMORY = (
    Row("memory-bomb", "16", "takes memory without end", OOM),
    Row("tmpfs-bomb", "18", "fills a /tmp that is larger than the memory cap", OOM, limits={"tmp_bytes": 1024 * MIB}),
    Row("shm-bomb", "19", "fills /dev/shm", DISK, judging.no_space),
    Row("memfd-bomb", "20", "fills anonymous files", OOM),
    Row("disk-bomb", "21", "fills every folder that takes bytes", DISK, judging.disk),
    Row("inode-bomb", "22", "makes empty files without end", DISK, judging.no_space),
    Row("reserve", "25", "reserves 100 TB of addresses, as CUDA does: must work", OK, judging.prints("reserved 10")),
    Row("fd-bomb", "26", "opens files without end", OK, judging.open_files),
    Row("core-dump", "27", "crashes with a core file asked for", FAILED, judging.no_core),
)
TALK = (
    Row("flood-stdout", "28", "writes 10 GB without a newline", OUTPUT, judging.bounded_output),
    Row("flood", "29", "writes 1 GB to each of stdout and stderr", OUTPUT, judging.bounded_output),
    Row("dribble", "30", "writes a byte now and then, for ever", TIMEOUT, judging.partial_output, SHORT),
    Row("escapes", "31", "writes escape sequences, NUL and invalid UTF-8", OK, judging.raw_kept),
    Row("never-reads", "33", "never reads what we send it", OK, judging.never_blocked, besides="unread link"),
    Row(
        *("result-files", "34 35 37", "plants links, pipes and swapped files where results might be read", OK),
        judging.refused(at_least=17),
    ),
    Row("forged-result", "38", "writes a forged result before, beside and after ours", OK, needs=MEASUREMENT),
    Row("scraped-nonce", "39", "scrapes nonces and descriptors, and replays them", OK, needs=BY_HAND),
    Row("bad-json", "40", "sends what no strict reader takes", PROTOCOL, judging.protocol(19), besides="link"),
    Row(
        "pickled",
        "42",
        "sends pickles that run a command where they are opened",
        PROTOCOL,
        judging.protocol(6),
        besides="trap",
    ),
)
ISOLATION = (
    Row(
        "snoop",
        "43",
        "reads environments, command lines, secrets and other people's files",
        OK,
        judging.canary_unseen,
        besides="secret",
    ),
    Row("network", "44", "reaches somebody, by sixteen roads", OK, judging.network, besides="listener"),
    Row(
        "bundle-write", "45", "changes its bundle, by every call that changes a file", OK, judging.refused(at_least=17)
    ),
    Row("mounts", "46", "changes what is mounted where", OK, judging.refused(frozenset({"EPERM"}), 15)),
    Row("cgroup-write", "47", "loosens its own limits through the cgroup files", OK, judging.refused()),
    Row("proc-write", "48", "changes the machine through /proc and /sys", OK, judging.refused(at_least=13)),
    Row("syscalls", "50", "calls bpf, io_uring, keyrings, modules, tracing", OK, judging.refused(NO_CALL, 29)),
    Row("neighbours", "52", "looks for a container that runs at the same time", OK, judging.alone, besides="neighbour"),
)
ON_GPU = (
    Row("gpu-endless", "53", "runs a kernel without end", one("gpu_hang"), needs=GPU),
    Row(
        "gpu-deadlock",
        "54",
        "lets the whole grid wait for a flag",
        one("gpu_hang") | one("quarantined"),
        needs=NO_DEADLOCK,
    ),
    Row("gpu-fault", "55", "reads an illegal address, overflows a stack, traps", one("gpu_fault"), needs=GPU),
    Row("gpu-memory", "56", "takes all of the GPU's memory, then dies", one("oom_gpu"), needs=GPU),
    Row("gpu-late-work", "57", "leaves work running after it said done", OK, needs=NO_ROW),
    Row("gpu-timer", "59", "replaces clocks, events and results", OK, needs=NO_ROW),
    Row("gpu-reach", "60", "opens another GPU, resets it, shares memory with a sibling", OK, needs=GPU),
)
ROWS = (*PROCESSES, *MEMORY, *TALK, *ISOLATION, *ON_GPU)
