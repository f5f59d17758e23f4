"""The GPU's rows of the check: faulty kernels on a real GPU, run by `runner.gpucheck`, as lines of the same report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from images.api import Image
from runner import devices, exits
from runner.check.attempt import Result
from runner.gpucheck import check as gpucheck
from sandbox.api import Sandbox

BUDGET_S = 240.0
CASES = {
    "good": "control",
    "device nodes: its own only": "60",
    "NVML setters refused": "60",
    "illegal address": "55",
    "endless kernel": "53",
    "GPU out of memory": "56",
    "context kept by a daemon": "60",
    "forked child holds memory": "56",
    "killed while full": "56",
    "device assert": "55",
    "gate: before and after": "gate",
}
"""Row of `runner.gpucheck` -> the number in the table of hostile programs that it answers."""


def the_gpu() -> str:
    """UUID of this host's first GPU. Raises Unavailable without one."""
    found = devices.gpus()
    if not found:
        raise exits.Unavailable("no GPU: `--gpu` was not run, nor anything else")
    return found[0]["uuid"]


def attempt(
    sandbox: Sandbox, image: Image, uuid: str, say: Callable[[str], None]
) -> tuple[list[Result], dict[str, Any]]:
    """All rows on this GPU, and the environment that they ran in."""
    check = gpucheck.Check(sandbox, image, uuid, say, BUDGET_S)
    return [line(one) for one in check.run()], check.environment()


def line(found: gpucheck.Result) -> Result:
    """One row of the GPU's in the words of this report. A row that the time cut off is a difference, not an excuse."""
    recovered = [
        f"{what} {seconds:.2f} s after its end"
        for what, seconds in (("clean", found.clean_s), ("a good candidate right", found.good_s))
        if seconds is not None
    ]
    problems = list(found.complaints)
    if found.status == "not run":
        problems.append("not run: no time left, or the GPU did not come back from the row before")
    return Result(
        name=found.name,
        case=CASES[found.name],
        tries="a faulty program on the GPU, then a good one",
        expected=(found.expected,),
        verdict="ok" if found.ok else "NO",
        observed=found.status,
        evidence=", ".join(recovered),
        problems=tuple(problems),
        seconds=found.wall_s or 0.0,
        control_s=found.good_s,
        facts={"peak_mib": found.peak_mib, "xids": found.xids, "outcome": found.outcome},
    )
