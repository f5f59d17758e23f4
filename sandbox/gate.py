"""The gate at a GPU: nothing is measured on one that is in use, ill or out of use, and what a measurement left behind is seen.

    before   its quarantine record, who is on it, memory above its idle baseline, pending repairs, the known kernel
    after    the same, and what the measurement brought: Xids, new uncorrected memory errors; processes and memory that are still
             there are waited for, for a bounded time

    ok           clean at once
    recovered    clean after a wait, which is reported
    quarantined  hung, wrong, in need of a reset, or not clean in time: a record says so, and no measurement starts there until
                 `release` has seen the known kernel pass

The gate never resets a GPU or kills a process: it only looks, waits and records. A GPU that somebody else works on is `GpuBusy`,
not ill. Use it under the GPU's lock; then whoever is seen there is a stranger or a leftover.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sandbox import gpurecords
from sandbox.api import SandboxFault
from sandbox.gpueyes import Eyes, Probe
from sandbox.gpulock import GpuBusy
from sandbox.nvml import GpuUnreadable, Reading
from sandbox.xid import Watch, XidLog

State = Literal["ok", "recovered", "quarantined"]


@dataclass(frozen=True)
class Rules:
    """What counts as clean, and for how long the gate waits for it."""

    slack_bytes: int = 64 << 20
    """Above the idle baseline."""
    grace_s: float = 1.0
    """A driver needs a moment to take a context down: clean within this is clean at once."""
    wait_s: float = 30.0
    poll_s: float = 0.05


@dataclass(frozen=True)
class Finding:
    """What one passage of the gate found."""

    state: State
    reason: str = ""
    """Why it is quarantined; empty else."""
    waited_s: float = 0.0
    reading: Reading | None = None
    probe: Probe | None = None
    xids: XidLog | None = None
    """Of the measurement; None before one."""

    def facts(self) -> dict[str, Any]:
        """For an event: plain values only."""
        return {
            "state": self.state,
            "reason": self.reason,
            "waited_s": round(self.waited_s, 3),
            "reading": self.reading.facts() if self.reading else None,
            "probe": asdict(self.probe) if self.probe else None,
            "xids": self.xids.facts() if self.xids else None,
        }


class Ill(Exception):
    """Inside the gate: why the GPU goes into quarantine."""

    def __init__(self, reason: str, probe: Probe | None = None) -> None:
        super().__init__(reason)
        self.reason, self.probe = reason, probe


@dataclass
class Gate:
    """One GPU's gate, for many measurements in turn. Not for several threads."""

    eyes: Eyes
    rules: Rules = field(default_factory=Rules)
    records: Path | None = None
    """Folder of the quarantine records; the host's own else."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    idle_bytes: int | None = None
    """The least memory that was ever seen in use without a process: the baseline."""
    who: str = ""
    _watch: Watch | None = None
    _start: Reading | None = None

    def before(self, who: str) -> Finding:
        """Look before a measurement; `who` is about to run. Raises GpuBusy, NvmlAbsent, SandboxFault."""
        self.who = who
        record = gpurecords.find(self.eyes.uuid, self.records)
        if record:
            return Finding("quarantined", record.text())
        found = self._examined(None)
        if found.state != "quarantined":
            self._start = found.reading
            assert self._start is not None
            self._watch = self.eyes.watch(self._start.pci)
        return found

    def after(self) -> Finding:
        """Look after the measurement that `before` let through. Raises NvmlAbsent, SandboxFault."""
        start, self._start = self._start, None
        if start is None or self._watch is None:
            raise SandboxFault("the gate was not passed before this measurement")
        try:
            return self._examined(start)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """The measurement was broken off (by the user, say): nothing is concluded about the GPU."""
        if self._watch is not None:
            self._watch.close()
        self._watch = self._start = None

    def release(self) -> str:
        """Lift the quarantine when the GPU passes now; one line for people. SandboxFault, and the record stays, when not."""
        record = gpurecords.find(self.eyes.uuid, self.records)
        if record is None:
            return f"GPU {self.eyes.uuid} is not quarantined"
        try:
            self._sound(self.eyes.read(), None)
            self._settled("")
            self._probed()
        except (Ill, GpuUnreadable) as trouble:
            raise SandboxFault(f"{record.text()}, and it stays so: {trouble}") from None
        gpurecords.lift(self.eyes.uuid, self.records)
        return f"GPU {self.eyes.uuid} is released; it was out of use because: {record.reason}"

    # --- what is looked at --------------------------------------------------------------------------------------------

    def _examined(self, start: Reading | None) -> Finding:
        """`start`: the reading before the measurement; None when this is before one."""
        waited, reading, probe = 0.0, None, None
        reason = ""
        try:
            waited, reading = self._settled("" if start is None else f"{self.who} ended, and ")
            self._sound(reading, start)
            self._spared()
            probe = self._probed()
        except Ill as ill:
            reason, probe = ill.reason, ill.probe
        except GpuUnreadable as unreadable:
            reason = str(unreadable)
        except GpuBusy as busy:
            if start is None:  # a stranger's, as far as anybody can tell
                raise
            reason = str(busy)
        log = self._watch.close() if self._watch else None
        if reason:
            gpurecords.put(self.eyes.uuid, reason, self.who, self.records)
            return Finding("quarantined", reason, waited, reading, probe, log)
        return Finding("recovered" if waited > self.rules.grace_s else "ok", "", waited, reading, probe, log)

    def _settled(self, prefix: str) -> tuple[float, Reading]:
        """Seconds until nobody is on it and memory is at the baseline, and the reading then. Raises GpuBusy."""
        began = self.clock()
        while left := self._left(reading := self.eyes.read()):
            if self.clock() - began >= self.rules.wait_s:
                raise GpuBusy(f"{prefix}GPU {self.eyes.uuid} is not free after {self.rules.wait_s:g} s: {left}")
            self.sleep(self.rules.poll_s)
        used = reading.memory_used_bytes
        self.idle_bytes = used if self.idle_bytes is None else min(self.idle_bytes, used)
        return self.clock() - began, reading

    def _left(self, reading: Reading) -> str:
        if reading.processes:
            return f"in use by pid {', '.join(str(process.pid) for process in reading.processes)}"
        above = 0 if self.idle_bytes is None else reading.memory_used_bytes - self.idle_bytes
        return f"{above >> 20} MiB above its idle baseline" if above > self.rules.slack_bytes else ""

    def _sound(self, reading: Reading, start: Reading | None) -> None:
        """Raises Ill for memory that is failing."""
        if reading.repair_pending:
            raise Ill("a memory repair waits for a reset, or failed")
        before = start.ecc_uncorrected if start else None
        if before is not None and (reading.ecc_uncorrected or 0) > before:
            raise Ill(f"uncorrected memory errors rose from {before} to {reading.ecc_uncorrected}")

    def _spared(self) -> None:
        """Raises Ill for a reset-class Xid of the measurement. No source that can be read is no sign of health, nor of illness."""
        bad = self._watch.close().of("reset") if self._watch else ()
        if bad:
            raise Ill("reset-class Xid " + ", ".join(str(xid.number) for xid in bad))

    def _probed(self) -> Probe:
        """Raises Ill for a GPU that does not do the known kernel, and GpuBusy when its own memory does not go."""
        probe = self.eyes.probe()
        if not probe.ok:
            raise Ill(probe.detail or probe.verdict, probe)
        self._settled("the known kernel ended, and ")
        return probe
