"""Runs the rows on one GPU, one after another: the program, the wait until the GPU is clean, the good candidate."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.api import Image
from runner.gpucheck.rows import GOOD, ROWS, Facts, Row, judged, text
from runner.jobs import ENV, GUEST_UID
from sandbox import gpu, nvml
from sandbox.api import Job, Limits, Mount, Outcome, Sandbox, SandboxFault
from sandbox.gate import Gate
from sandbox.gpueyes import HostEyes
from sandbox.xid import HostWatch, XidLog

PROGRAMS = Path(__file__).resolve().parent / "programs"
SLACK_BYTES = 64 << 20
CLEAN_S = 30.0
"""A GPU that is not clean so long after its program's end is not used any more."""
WALL_S = 60.0
MEMORY_BYTES = 8 << 30
POLL_S = 0.02


@dataclass
class Result:
    """One row as it went. Seconds are of the host's clock."""

    name: str
    expected: str
    status: str = "not run"
    complaints: list[str] = field(default_factory=list)
    wall_s: float | None = None
    clean_s: float | None = None
    """From its end (or from our SIGKILL) until NVML shows neither a process nor memory above the baseline."""
    good_s: float | None = None
    """From the same moment until the good candidate, in a new container, had ended with the right answer."""
    peak_mib: int | None = None
    """GPU memory above the baseline right at the end, before anything else was done."""
    xids: dict[str, object] = field(default_factory=dict)
    outcome: dict[str, object] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status != "not run" and not self.complaints


@dataclass
class Check:
    """State of one check while it runs."""

    sandbox: Sandbox
    image: Image
    uuid: str
    say: Callable[[str], None]
    budget_s: float

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.baseline = nvml.read(self.uuid)
        self.facts = Facts(gpu.nodes(self.uuid))
        self.pause_s = 15.0
        """How long a program that never ends may go on: long enough to reach its point, by the control's time."""

    def run(self) -> list[Result]:
        """Raises SandboxFault when the GPU is not free, or the good candidate fails before any faulty one has run."""
        if self.baseline.processes:
            pids = ", ".join(str(process.pid) for process in self.baseline.processes)
            raise SandboxFault(f"GPU {self.uuid} is in use (pid {pids}): the check needs it alone")
        control = self._row(GOOD)
        self._tell(control)
        if not control.ok:
            raise SandboxFault(f"the good candidate fails on an untouched GPU: {'; '.join(control.complaints)}")
        self.pause_s = min(30.0, 1.4 * (control.wall_s or 0) + 3)
        results = [control]
        for row in ROWS:
            results.append(self._row(row) if self._goes_on(results, row) else Result(row.name, row.expect.value))
            self._tell(results[-1])
        results.append(self._gate())
        self._tell(results[-1])
        return results

    def environment(self) -> dict[str, Any]:
        """What a reader needs to compare this with another run."""
        return {
            "kernel": os.uname().release,
            "cpus": len(os.sched_getaffinity(0)),
            "gpu": self.baseline.facts(),
            "nodes": list(self.facts.nodes),
            "sandbox": self.sandbox.describe(),
            "image": {"digest": self.image.digest, "manifest": dict(self.image.manifest)},
            "slack_bytes": SLACK_BYTES,
            "took_s": round(time.monotonic() - self.began, 1),
        }

    def _goes_on(self, results: list[Result], row: Row) -> bool:
        """Not on a GPU that did not come back or does not answer, and not beyond the budget."""
        needed = (self.pause_s if row.waits else results[0].wall_s or 0) + (results[0].wall_s or 0)
        return (
            results[-1].status not in ("quarantined", "infra_error")
            and time.monotonic() - self.began + needed < self.budget_s
        )

    def _gate(self) -> Result:
        """The gate of every measurement, passed once in both directions at the end, with nothing in between."""
        result = Result("gate: before and after", "ok")
        began = time.monotonic()
        try:
            gate = Gate(HostEyes(self.sandbox, self.image, self.uuid))
            found = gate.before("gpucheck")
            if found.state != "quarantined":
                found = gate.after()
            result.status, result.outcome = found.state, found.facts()
            result.complaints = [found.reason] if found.state != "ok" else []
            result.xids = found.xids.facts() if found.xids else {}
        except SandboxFault as fault:
            result.status, result.complaints = "infra_error", [str(fault)]
        result.wall_s = round(time.monotonic() - began, 3)
        return result

    def _row(self, row: Row) -> Result:
        result = Result(row.name, row.expect.value)
        try:
            watch = HostWatch(self.uuid, self.baseline.pci)
            try:
                outcome, ended = self._once(row)
                result.wall_s, result.outcome = round(outcome.wall_s, 3), outcome.evidence()
                if row.uses_gpu:
                    self._settle(row, result, ended)
            finally:
                log = watch.close()
            self._judge(row, result, outcome, log)
        except SandboxFault as fault:
            result.status = "infra_error"
            result.complaints.append(str(fault))
        return result

    def _once(self, row: Row) -> tuple[Outcome, float]:
        """Run it; the moment when it ended by itself or was told to die, by the host's clock."""
        job = self._job(row)
        with self.sandbox.start(job) as running:
            outcome = running.wait(job.limits.wall_s)
            dying_s = max(0.0, outcome.wall_s - job.limits.wall_s) if outcome.status == "timeout" else 0.0
            ended = time.monotonic() - dying_s
        return outcome, ended

    def _judge(self, row: Row, result: Result, outcome: Outcome, log: XidLog) -> None:
        status, complaints = judged(row, outcome, log, self.facts)
        result.xids = log.facts()
        result.complaints = complaints + result.complaints
        if result.status != "quarantined":
            result.status = status.value

    def _settle(self, row: Row, result: Result, ended: float) -> None:
        """Wait until the GPU is clean, then prove it with the good candidate."""
        while left := self._left(result):
            if time.monotonic() - ended > CLEAN_S:
                result.status = "quarantined"
                result.complaints.append(f"not clean {CLEAN_S:g} s after its end: {left}")
                return
            time.sleep(POLL_S)
        result.clean_s = round(time.monotonic() - ended, 3)
        if row is not GOOD:
            good, _ = self._once(GOOD)
            if good.status == "exited" and good.exit_code == 0 and GOOD.says in good.stdout.text():
                result.good_s = round(time.monotonic() - ended, 3)
            else:
                result.complaints.append(f"the good candidate failed afterwards: {good.status} {text(good)[-300:]!r}")

    def _left(self, result: Result) -> str:
        """What is still on the GPU; empty when it is clean."""
        seen = nvml.read(self.uuid)
        above = seen.memory_used_bytes - self.baseline.memory_used_bytes
        if result.peak_mib is None:
            result.peak_mib = max(0, above) >> 20
        if seen.processes:
            return f"processes {[process.pid for process in seen.processes]}"
        return f"{above >> 20} MiB above the baseline" if above > SLACK_BYTES else ""

    def _job(self, row: Row) -> Job:
        return Job(
            name=f"assay-gpucheck-{secrets.token_hex(4)}",
            role="guest",
            argv=("-I", f"/programs/{row.program}"),
            image=self.image,
            env=ENV,
            mounts=(Mount(PROGRAMS, "/programs"),),
            limits=Limits(wall_s=self.pause_s if row.waits else WALL_S, memory_bytes=MEMORY_BYTES),
            uid=GUEST_UID,
            gpu=self.uuid,
        )

    def _tell(self, result: Result) -> None:
        mark = "ok  " if result.ok else "FAIL"
        trouble = f": {'; '.join(result.complaints)}" if result.complaints else ""
        self.say(f"{time.monotonic() - self.began:6.1f} s  {mark} {result.name}: {result.status}{trouble}")
