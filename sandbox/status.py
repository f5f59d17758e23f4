"""One closed vocabulary for how a run ended, and the one function that maps what was seen onto it.

`api.Status` says what a container did, seen from outside. A report speaks of more: whether the answer was right, whether the GPU
hung, whether the failure was ours. Those facts come from others (the judge, the driver), so they are arguments here, and the
function stays pure: the same evidence gets the same word for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from sandbox.api import Outcome, SandboxFault


class RunStatus(StrEnum):
    """How a run ended. A value, once released, keeps its meaning."""

    OK = "ok"
    WRONG = "wrong"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OOM_HOST = "oom_host"
    OOM_GPU = "oom_gpu"
    GPU_FAULT = "gpu_fault"
    GPU_HANG = "gpu_hang"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    PIDS_LIMIT = "pids_limit"
    PROTOCOL_ERROR = "protocol_error"
    POLICY_VIOLATION = "policy_violation"
    INFRA_ERROR = "infra_error"
    QUARANTINED = "quarantined"


GpuSign = Literal["oom", "fault", "hang", "quarantined"]
GPU: dict[GpuSign, RunStatus] = {
    "oom": RunStatus.OOM_GPU,
    "fault": RunStatus.GPU_FAULT,
    "hang": RunStatus.GPU_HANG,
    "quarantined": RunStatus.QUARANTINED,
}
CAPS = {
    "oom": RunStatus.OOM_HOST,
    "output-limit": RunStatus.OUTPUT_LIMIT,
    "pids-limit": RunStatus.PIDS_LIMIT,
}
"""Ends of a container that the kernel or we forced, and that no other evidence explains away."""


@dataclass(frozen=True)
class Seen:
    """What others than the container's supervisor saw. The default: nothing."""

    phase: Literal["build", "run"] = "run"
    correct: bool | None = None
    """The judge's word; None where nothing was judged."""
    gpu: GpuSign | None = None
    disk_full: bool = False
    """A write was refused for space or inodes. The program's own word will do: it only ever speaks against it."""
    protocol_broken: bool = False
    policy_broken: bool = False
    """It achieved something that the policy forbids, or its source was refused for one."""


def classify(ended: Outcome | SandboxFault, seen: Seen | None = None) -> RunStatus:
    """The one word for a run. Our own failure is `infra_error` whatever else was seen: it never counts against a candidate.

    Out of memory is read from the outcome's status (counters, the engine's flag and the exit code together, see
    `supervise.classify`) and from its counter alone, except where we ended the run ourselves for its time or its output.
    A `killed` container is one that we ended after its work, as every guest is: what was seen beside it decides.
    """
    seen = seen or Seen()
    if isinstance(ended, SandboxFault):
        return RunStatus.INFRA_ERROR
    failed = ended.status == "signalled" or (ended.status == "exited" and ended.exit_code != 0)
    forced = ended.status in ("timeout", "output-limit")
    candidates = (
        (seen.gpu is not None, GPU.get(seen.gpu or "fault", RunStatus.GPU_FAULT)),
        (seen.policy_broken, RunStatus.POLICY_VIOLATION),
        (bool(ended.oom_kills) and not forced, RunStatus.OOM_HOST),
        (ended.status in CAPS, CAPS.get(ended.status, RunStatus.OK)),
        (ended.status == "timeout", RunStatus.TIMEOUT),
        (seen.disk_full, RunStatus.DISK_LIMIT),
        (failed and seen.phase == "build", RunStatus.COMPILE_ERROR),
        (failed, RunStatus.RUNTIME_ERROR),
        (seen.protocol_broken, RunStatus.PROTOCOL_ERROR),
        (seen.correct is False, RunStatus.WRONG),
    )
    return next((status for applies, status in candidates if applies), RunStatus.OK)
