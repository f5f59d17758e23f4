"""The public fake of a GPU as the gate sees it, with a clock of its own: each of its troubles is one attribute.

For tests of what lies above NVML and the probe. No command line offers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.api import SandboxFault
from sandbox.gpueyes import Probe
from sandbox.nvml import Process, Reading
from sandbox.xid import Xid, XidLog

UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"


@dataclass
class FakeGpu:
    """An `Eyes`. Healthy and idle until told otherwise."""

    uuid: str = UUID
    now: float = 0.0
    """Its clock, seconds; `sleep` moves it."""
    idle_bytes: int = 600 << 20
    leftover_until: float = 0.0
    """Until then process 4242 is on it, with 4 GiB."""
    hidden_bytes: int = 0
    """Memory above idle that no listed process owns (the driver shows no process of another pid namespace)."""
    ecc_uncorrected: int | None = 0
    repair_pending: bool | None = False
    xids: list[int] = field(default_factory=list)
    """To be found by the next window."""
    xid_sources: tuple[tuple[str, str], ...] = (("kmsg", "not readable: the fake has none"), ("nvml", "read"))
    answers: list[Probe] = field(default_factory=list)
    """Of the next probes, in order; then `right`."""
    trouble: SandboxFault | None = None
    """Raised by every look at it: NvmlAbsent, GpuUnreadable."""
    probes: int = 0
    windows: int = 0
    """How many are open now."""

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> Reading:
        if self.trouble:
            raise self.trouble
        there = self.now < self.leftover_until
        return Reading(
            uuid=self.uuid,
            name="fake",
            driver="0",
            pci="0000:01:00.0",
            memory_used_bytes=self.idle_bytes + self.hidden_bytes + (4 << 30 if there else 0),
            memory_total_bytes=1 << 37,
            processes=(Process(4242, 4 << 30, "compute"),) if there else (),
            ecc_uncorrected=self.ecc_uncorrected,
            repair_pending=self.repair_pending,
        )

    def watch(self, pci: str) -> FakeWatch:
        self.windows += 1
        return FakeWatch(self)

    def probe(self) -> Probe:
        self.probes += 1
        return self.answers.pop(0) if self.answers else Probe("right", "", 1.0)


@dataclass
class FakeWatch:
    """Its window: what was put into `xids` before it is closed."""

    gpu: FakeGpu
    log: XidLog | None = None

    def close(self) -> XidLog:
        if self.log is None:
            self.gpu.windows -= 1
            seen = tuple(Xid(number, "nvml") for number in self.gpu.xids)
            self.gpu.xids.clear()
            self.log = XidLog(seen, self.gpu.xid_sources)
        return self.log
