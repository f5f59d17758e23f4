"""`runner.lab.Lab` with real containers: one sandbox engine, one image, one device."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from eventstore.facts import Pair
from images.api import Image
from runner import compiling, devices
from runner.built import built
from runner.bundle import Bundle, project, write
from runner.compiling import Plan
from runner.gated import Gated, gated
from runner.jobs import UNIT_S, Jobs
from runner.lab import Built, PairPlan
from runner.unit import Unit
from runner.warm import Pool
from runner.workspace import release, workspace
from sandbox.api import Sandbox, SandboxFault

BASELINE_AND_NEWCOMER = 2


@dataclass(frozen=True)
class SandboxLab:
    """Builds and measures in containers of `sandbox`. Warm, it prepares the next unit's containers ahead; `close` ends those."""

    sandbox: Sandbox
    image: Image
    device: str
    """`cpu` (Triton's interpreter) or `cuda`."""
    gpu: str | None = None
    memory_bytes: int = 4 << 30
    wall_s: float = UNIT_S
    warm: bool = False
    pool: Pool = field(init=False, repr=False)
    gate: Gated | None = field(init=False, repr=False)
    """None on the CPU."""
    _plans: dict[str, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By the bundle's digest: what to compile is found out once."""

    def __post_init__(self) -> None:
        jobs = Jobs(self.image, self.device, self.gpu, self.memory_bytes, self.wall_s)
        object.__setattr__(self, "pool", Pool(self.sandbox, jobs))
        object.__setattr__(self, "gate", gated(self.sandbox, self.image, self.gpu))

    def describe(self) -> dict[str, Any]:
        return {
            "image": {"name": self.image.name, "digest": self.image.digest, "manifest": dict(self.image.manifest)},
            "sandbox": self.sandbox.describe(),
            "device": self.device,
            "gpu": next((g for g in devices.gpus() if g["uuid"] == self.gpu), None) if self.gpu else None,
        }

    def build(self, bundle: Bundle, source: bytes, unit: str) -> Built:
        """Import the source in a container without a GPU and, for a GPU, compile what it launches: see sandbox/guest/build.py."""
        self._prepare(bundle, BASELINE_AND_NEWCOMER)
        plan = self._plan(bundle, unit)
        with workspace() as folder:
            place = folder / "bundle"
            project(bundle, place)
            release(source, place)
            job = self.pool.jobs.build(unit, place, bundle.entry, compiling.FILE if plan.cases else "")
            if plan.cases:
                plan.write(place, job.limits)
            return built(self.sandbox.run(job), bundle, plan)

    def pair(self, bundle: Bundle, plan: PairPlan) -> Pair:
        if self.gate is None:
            pair = self._measured(bundle, plan)
        else:
            with self.gate.around(plan.unit) as seen:
                pair = self._measured(bundle, plan)
            pair = pair.model_copy(update={"device": {**pair.device, "gate": seen}})
        self._prepare(bundle, len(plan.arms))
        return pair

    def _measured(self, bundle: Bundle, plan: PairPlan) -> Pair:
        with ExitStack() as stack:
            return Unit(self.pool, bundle, plan, stack).run()

    def close(self) -> None:
        self.pool.close()

    def _plan(self, bundle: Bundle, unit: str) -> Plan:
        if bundle.digest not in self._plans:
            arch = compiling.architecture(bundle, self.device, self.gpu)
            if arch == 0:
                return Plan(
                    why="the interpreter compiles nothing" if self.device == "cpu" else "target.json names no sm_.."
                )
            with workspace() as folder:
                write(bundle, folder / "task")
                outcome = self.sandbox.run(self.pool.jobs.specs(unit, folder / "task"))
            plan = compiling.planned(arch, outcome)
            if plan.why:
                return plan  # a busy machine may know better next time
            self._plans[bundle.digest] = plan
        return self._plans[bundle.digest]

    def _prepare(self, bundle: Bundle, guests: int) -> None:
        """Blanks for the next unit import while its source is awaited, built or decided upon. An engine that cannot start them
        now is told of when the unit takes its own."""
        if self.warm:
            with suppress(SandboxFault):
                self.pool.fill(bundle.digest, guests)
