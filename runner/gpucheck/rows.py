"""What is run, in order, and what must come of each: one `Row` per program, and the pure judgement of its end.

A row holds when the program really reached its point (`says`, its own word), the sandbox gave it the expected status, the host saw
the GPU clean again, and the good candidate was right afterwards. What a program says is only ever used against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ops import wire
from sandbox.api import Outcome
from sandbox.status import GpuSign, RunStatus, Seen, classify
from sandbox.xid import XidLog

OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY")
FAULTS = ("illegal memory access", "device-side assert", "CUDA error", "unspecified launch failure")
NO_PERMISSION, NOT_SUPPORTED = 4, 3


@dataclass(frozen=True)
class Row:
    """One program and what is expected of it."""

    name: str
    program: str
    expect: RunStatus
    says: str = ""
    """Must stand in what it printed, else it never did what it is here for."""
    waits: bool = False
    """It never ends by itself: the wall-clock limit does, and is kept short."""
    hangs: bool = False
    """A kernel of its own is running when that limit comes."""
    uses_gpu: bool = True
    judge: Callable[[str, Facts], list[str]] | None = None
    """For a program that reports facts: (its output, what the host knows) -> complaints."""


@dataclass(frozen=True)
class Facts:
    """What the host knows of the GPU that a row may use."""

    nodes: tuple[str, ...]


def sign(row: Row, outcome: Outcome, xids: XidLog) -> GpuSign | None:
    """What happened to the GPU's part of the run, from the driver's Xids, the clock, and its own word against it."""
    printed = text(outcome)
    if any(word in printed for word in OUT_OF_MEMORY):
        return "oom"
    if row.hangs and outcome.status == "timeout" and row.says in printed:
        return "hang"
    if outcome.status != "timeout" and (xids.of("application") or any(word in printed for word in FAULTS)):
        return "fault"
    return None


def judged(row: Row, outcome: Outcome, xids: XidLog, facts: Facts) -> tuple[RunStatus, list[str]]:
    """The one word for its end, and what is not as it must be."""
    status = classify(outcome, Seen(gpu=sign(row, outcome, xids)))
    complaints = []
    if status != row.expect:
        complaints.append(f"{status.value} instead of {row.expect.value}: {text(outcome)[-300:].strip()!r}")
    if row.says not in text(outcome):
        complaints.append(f"never said {row.says!r}")
    if xids.of("reset"):
        complaints.append(f"reset-class Xid {', '.join(str(x.number) for x in xids.of('reset'))}")
    if row.judge and not complaints:
        complaints += row.judge(outcome.stdout.text(), facts)
    return status, complaints


def text(outcome: Outcome) -> str:
    return outcome.stdout.text() + outcome.stderr.text()


def only_its_own(printed: str, facts: Facts) -> list[str]:
    """The three nodes of its own GPU, and no way to make another."""
    said = _line(printed)
    found = sorted(said.get("nodes", ()))
    complaints = [] if found == sorted(facts.nodes) else [f"nodes {found} instead of {sorted(facts.nodes)}"]
    made = said.get("mknod", {})
    return complaints + [f"mknod of minor {m}: {what}" for m, what in made.items() if what not in ("EPERM", "EACCES")]


def refused(printed: str, _: Facts) -> list[str]:
    """NVML answers, and each of its setters says no."""
    said = _line(printed)
    setters = {name: code for name, code in said.items() if name.startswith("set ")}
    complaints = [] if said.get("init") == 0 and said.get("handle") == 0 else [f"NVML does not answer inside: {said}"]
    if not setters:
        complaints.append("no setter was tried")
    return complaints + [f"{n}: code {c}" for n, c in setters.items() if c not in (NO_PERMISSION, NOT_SUPPORTED)]


def _line(printed: str) -> dict[str, Any]:
    try:
        said = wire.read_json(printed.strip().splitlines()[-1].encode())
    except (ValueError, IndexError):
        return {}
    return said if isinstance(said, dict) else {}


GOOD = Row("good", "good.py", RunStatus.OK, "good")
ROWS = (
    Row("device nodes: its own only", "nodes.py", RunStatus.OK, uses_gpu=False, judge=only_its_own),
    Row("NVML setters refused", "setters.py", RunStatus.OK, uses_gpu=False, judge=refused),
    Row("illegal address", "illegal_address.py", RunStatus.GPU_FAULT, "launched"),
    Row("endless kernel", "endless_kernel.py", RunStatus.GPU_HANG, "launched", waits=True, hangs=True),
    Row("GPU out of memory", "out_of_memory.py", RunStatus.OOM_GPU, "held "),
    Row("context kept by a daemon", "kept_by_daemon.py", RunStatus.OK, "daemon holds"),
    Row("forked child holds memory", "kept_by_child.py", RunStatus.RUNTIME_ERROR, "child forked"),
    Row("killed while full", "killed_while_full.py", RunStatus.TIMEOUT, "held ", waits=True),
    Row("device assert", "device_assert.py", RunStatus.GPU_FAULT, "launched"),
)
"""The most telling first: what the time budget cuts off is named and fails."""
