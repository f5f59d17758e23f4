"""The second table: faults of the platform, what must come of each, and why some are not provoked here. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from runner.check import faults
from runner.check.faults import Action
from sandbox import cgroups

DAEMON = "would stop the host's Docker daemon for everybody; it needs a daemon of its own"
GPU = "needs an NVIDIA GPU"


@dataclass(frozen=True)
class Fault:
    """One fault. Its expectation is a word of `sandbox.status` where a run has an end, else what `faults` says."""

    name: str
    case: str
    tries: str
    expected: frozenset[str]
    action: Action | None = None
    """None: never provoked here, see `needs`."""
    needs: str = ""
    engines: tuple[str, ...] = ("docker", "bwrap")
    cgroup: str = ""
    """Only on a host with this kind of cgroups."""

    def absent(self, engine: str) -> str:
        """Why it is not run on this engine here; empty when it is."""
        if self.needs:
            return self.needs
        if engine not in self.engines:
            return f"only with {' or '.join(self.engines)}"
        if self.cgroup and self.cgroup != cgroups.kind():
            return f"needs a host with cgroups {self.cgroup}; this one has {cgroups.kind()}"
        return ""


def one(word: str) -> frozenset[str]:
    return frozenset({word})


INFRA = one("infra_error")
FAULTS = (
    Fault(
        "runner-killed",
        "P1",
        "SIGKILL for a runner whose container runs, then gc",
        one("cleared"),
        faults.runner_killed,
    ),
    Fault("daemon-killed", "P2", "SIGKILL for the Docker daemon during a run", INFRA, needs=DAEMON),
    Fault("daemon-paused", "P3", "the Docker daemon stands still for 30 s", INFRA, needs=DAEMON),
    Fault("start-fails", "P4", "a bad image, a folder that is not there", INFRA, faults.start_fails),
    Fault(
        "wait-reset",
        "P5",
        "the connection to the daemon is reset while we wait",
        INFRA,
        faults.wait_reset,
        "",
        ("docker",),
    ),
    Fault("disk-full", "P6", "the disk of the log is full", one("exit 73"), faults.disk_full),
    Fault("gpu-vanishes", "P7", "the GPU is gone during a run", INFRA, needs=GPU),
    Fault("gpu-xid", "P8", "the driver reports Xid 79 during a run", INFRA, needs=GPU),
    Fault("clock-step", "P9", "the host's clock is set during a run", one("ok"), needs="would set this host's clock"),
    Fault("gpu-shared", "P10", "two runners on one GPU", INFRA, needs=GPU),
    Fault("foreign", "P11", "gc meets a container or cgroup of somebody else", one("untouched"), faults.foreign),
    *(
        Fault(
            f"cgroup-{kind}",
            "P12",
            f"counters on a host with cgroups {kind}",
            one("counted"),
            faults.counted,
            cgroup=kind,
        )
        for kind in ("v1", "v2", "hybrid")
    ),
)
