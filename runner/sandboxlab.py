"""`runner.lab.Lab` with real containers: one sandbox engine, one image, one device."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from eventstore.facts import Pair
from images.api import Image
from ops import wire
from runner import devices
from runner.bundle import Bundle, project
from runner.gated import Gated, gated
from runner.jobs import UNIT_S, Jobs
from runner.lab import Built, PairPlan
from runner.unit import Unit
from runner.warm import Pool
from runner.workspace import release, workspace
from sandbox.api import Outcome, Sandbox, SandboxFault

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
        """Import the source in a container without a GPU; see sandbox/guest/build.py for the claim."""
        self._prepare(bundle, BASELINE_AND_NEWCOMER)
        with workspace() as folder:
            place = folder / "bundle"
            project(bundle, place)
            release(source, place)
            return _built(self.sandbox.run(self.pool.jobs.build(unit, place, bundle.entry)))

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

    def _prepare(self, bundle: Bundle, guests: int) -> None:
        """Blanks for the next unit import while its source is awaited, built or decided upon. An engine that cannot start them
        now is told of when the unit takes its own."""
        if self.warm:
            with suppress(SandboxFault):
                self.pool.fill(bundle.digest, guests)


def _built(outcome: Outcome) -> Built:
    """From what was seen outside first; the claim only where the container ended by itself."""
    evidence = dict(outcome.evidence())
    log = (outcome.stdout.text() + outcome.stderr.text()).encode()
    seen = {"timeout": "build-timeout", "oom": "build-oom", "output-limit": "output-limit"}.get(outcome.status)
    if seen:
        return Built(False, seen, f"build container: {outcome.status}", {}, evidence, log)
    lines = (outcome.stdout.tail or outcome.stdout.head).strip().splitlines()
    try:
        claim = wire.decode(lines[-1]) if lines else {}
    except wire.WireError:
        claim = {}
    if outcome.status == "exited" and outcome.exit_code == 0 and claim.get("ok") is True:
        jit = claim.get("jit")
        names = [wire.clean(name, 100) for name in jit[:64]] if isinstance(jit, list) else []
        return Built(True, "", "", {"ok": True, "jit": names}, evidence, log)
    claim = {key: wire.clean(claim[key]) for key in ("reason", "detail") if key in claim}
    reason = claim.get("reason")
    reason = reason if reason in ("syntax", "no-entry") else "build-error"
    detail = str(
        claim.get("detail") or f"build container: {outcome.status} {outcome.exit_code or outcome.signal or ''}"
    )
    return Built(False, reason, detail[:2000], claim, evidence, log)
