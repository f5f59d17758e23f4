"""What the gate sees of one GPU, as an interface, and the real one: NVML, the Xid sources, a known kernel in our own container.

The kernel runs in a container because host processes hold no CUDA context, and because a hung one must be killable.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from images.api import Image
from sandbox import nvml
from sandbox.api import Job, Limits, Mount, Outcome, Sandbox, SandboxFault
from sandbox.nvml import Reading
from sandbox.xid import HostWatch, Watch

SHIM = Path(__file__).resolve().parent / "guest"
THREADS = 65536
ANSWER = THREADS * (THREADS - 1) // 2
"""Of guest/gpuprobe.py: the sum of its thread numbers."""
PROBE_S = 20.0
"""It takes about a second; a GPU that needs longer is not fit to be timed on."""


@dataclass(frozen=True)
class Probe:
    """What came of the known kernel."""

    verdict: Literal["right", "wrong", "failed", "hung"]
    detail: str = ""
    wall_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.verdict == "right"


class Eyes(Protocol):
    """One GPU, seen from the host."""

    @property
    def uuid(self) -> str: ...

    def read(self) -> Reading:
        """Raises NvmlAbsent, GpuUnreadable."""

    def watch(self, pci: str) -> Watch:
        """From now on, its Xids."""

    def probe(self) -> Probe:
        """Run the known kernel. Raises SandboxFault when nothing can be said of the GPU because the container failed."""


@dataclass(frozen=True)
class HostEyes:
    """The real one."""

    sandbox: Sandbox
    image: Image
    uuid: str

    def read(self) -> Reading:
        return nvml.read(self.uuid)

    def watch(self, pci: str) -> Watch:
        return HostWatch(self.uuid, pci)

    def probe(self) -> Probe:
        return verdict(self.sandbox.run(self.job()))

    def job(self) -> Job:
        """The probe's container: a guest's permissions, nothing of a candidate's."""
        return Job(
            name=f"assay-gpuprobe-{secrets.token_hex(4)}",
            role="guest",
            argv=("-I", "/shim/gpuprobe.py"),
            image=self.image,
            mounts=(Mount(SHIM, "/shim"),),
            limits=Limits(wall_s=PROBE_S, memory_bytes=2 << 30),
            gpu=self.uuid,
        )


def verdict(outcome: Outcome) -> Probe:
    """From how the probe's container ended. Raises SandboxFault where that says nothing of the GPU."""
    if outcome.status == "timeout":
        return Probe("hung", f"the known kernel did not end within {PROBE_S:g} s", outcome.wall_s)
    if outcome.status == "signalled":
        return Probe("failed", f"the known kernel's process died of signal {outcome.signal}", outcome.wall_s)
    try:
        said = json.loads(outcome.stdout.text())
    except ValueError:
        said = None
    if outcome.status != "exited" or outcome.exit_code != 0 or not isinstance(said, dict) or "cannot" in said:
        told = said.get("cannot") if isinstance(said, dict) else outcome.stderr.text()[-500:]
        raise SandboxFault(f"the GPU probe did not run ({outcome.status} {outcome.exit_code}): {told}")
    if "error" in said:
        return Probe("failed", str(said["error"])[:300], outcome.wall_s)
    if said.get("answer") != ANSWER:
        return Probe("wrong", f"the known kernel answered {said.get('answer')!r} instead of {ANSWER}", outcome.wall_s)
    return Probe("right", "", outcome.wall_s)
