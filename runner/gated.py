"""A measurement on a GPU, behind its lock and its gate: what it returns counts only when the GPU was well before and after it.

A GPU that is busy, out of use or ill is our fault (`GpuFault`, a SandboxFault): the step is tried again, and nobody gets
a verdict from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.api import Image
from sandbox import gpulock
from sandbox.api import Sandbox, SandboxFault
from sandbox.gate import Finding, Gate
from sandbox.gpueyes import HostEyes

LOCK_WAIT_S = 600.0
"""Another unit may be on the GPU; it ends sooner or later by its own limits."""


class GpuFault(SandboxFault):
    """The GPU, not the candidate: quarantined before the measurement or because of what was seen after it."""


@dataclass
class Gated:
    """The passage to one GPU."""

    gate: Gate
    lock_wait_s: float = LOCK_WAIT_S
    locks: Path | None = None
    """Folder of the locks; the host's own else."""

    @contextmanager
    def around(self, who: str) -> Iterator[dict[str, Any]]:
        """Measure inside; all of its containers are gone when the block ends. The dict then says what the gate found, for the log.

        Raises GpuBusy, GpuFault. A SandboxFault of the block itself passes, unless the GPU came out of it ill: that explains it.
        """
        facts: dict[str, Any] = {}
        with gpulock.held(self.gate.eyes.uuid, who, self.lock_wait_s, self.locks):
            before = self.gate.before(who)
            if before.state == "quarantined":
                raise GpuFault(f"gpu-fault: before {who}: {before.reason}")
            facts["before"] = before.facts()
            try:
                yield facts
            except SandboxFault as fault:
                _let_through(self.gate.after(), who, fault)
                raise
            else:
                after = self.gate.after()
                facts["after"] = after.facts()
                _let_through(after, who, None)
            finally:
                self.gate.abandon()


def gated(sandbox: Sandbox, image: Image, gpu: str | None) -> Gated | None:
    """The passage to this host's GPU; None for a measurement on the CPU, which needs none."""
    return Gated(Gate(HostEyes(sandbox, image, gpu))) if gpu else None


def release(uuid: str, sandbox: Sandbox, image: Image) -> str:
    """Lift a quarantine after a passing probe; one line for people. Raises GpuBusy, SandboxFault when it stays."""
    with gpulock.held(uuid, "release", 10.0):
        return Gate(HostEyes(sandbox, image, gpulock.checked(uuid))).release()


def _let_through(after: Finding, who: str, fault: SandboxFault | None) -> None:
    if after.state == "quarantined":
        besides = f"; besides: {fault}" if fault else ""
        raise GpuFault(f"gpu-fault: after {who}: {after.reason}{besides}") from fault
