"""The small interface behind which candidates are built and measured: values in, values out, no log, no global state.

`SandboxLab` (runner/sandboxlab.py) implements it with real containers. A measurement unit (judge + guests on one device) is
addressed only through `Lab`, so that units can later run elsewhere while the driver stays the only writer of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from eventstore.facts import Pair
from runner.bundle import Bundle


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: a complete kernel source under a role name."""

    name: str
    source: bytes


@dataclass(frozen=True)
class PairPlan:
    """One measurement unit: fresh processes for every arm, then interleaved blocks. Chosen by us, never by a guest."""

    unit: str
    """Unique id, safe in a container name: `[a-z0-9-]`, at most 60 characters."""
    arms: tuple[Arm, ...]
    """The baseline first; the newcomer last (its source is released only after the baseline's series alone)."""
    order_seed: int
    """Seeds the order of arms inside each block and of cases; says nothing about inputs."""
    verify_calls: int = 3
    """Per arm and case, first: they warm up, are checked like every other, and are kept out of the speed (block -1)."""
    alone_calls: int = 5
    """Baseline alone, per case, before the newcomer exists (block -2) and after it is gone (block -3)."""
    blocks: int = 6
    calls: int = 3
    """Per block, arm and case."""
    families: tuple[str, ...] = ()
    """Hidden input families to check besides the task's own distribution (one verify call each); `"*"`: all it has."""
    call_timeout_s: float = 30.0


@dataclass(frozen=True)
class Built:
    """What a build container did with a source."""

    ok: bool
    reason: str = ""
    """One of `ops.decide.reasons`; empty when ok."""
    detail: str = ""
    claim: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""


class Lab(Protocol):
    """Builds and measures; knows nothing of episodes."""

    def build(self, bundle: Bundle, source: bytes, unit: str) -> Built:
        """Import the source in a build container. Raises SandboxFault when we failed."""

    def pair(self, bundle: Bundle, plan: PairPlan) -> Pair:
        """Run one unit. If the newcomer's verification is wrong it stops there. Raises SandboxFault when we failed."""

    def describe(self) -> dict[str, Any]:
        """Engine, image, device facts for `EpisodeStarted.environment`."""

    def close(self) -> None:
        """Nothing more will be asked: what was prepared ahead is destroyed."""
