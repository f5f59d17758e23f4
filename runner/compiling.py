"""What the build container is to compile: for which architecture, and the form of the arguments in each case.

The form comes from a trusted job (`ops/judge/specs.py`) in the judge's container, asked once per bundle. Where there is nothing to
compile for, or the form is not known, the plan says why, and the build only imports.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops import wire
from runner import devices
from runner.bundle import Bundle
from sandbox.api import Limits, Outcome

FILE = "inputs.json"
"""Beside the projected bundle in the build container."""
CALL_S = 30.0
"""The calls on CPU tensors may take so long."""
SPARE_S = 10.0
"""And end so long before the container's own limit, which would be a verdict."""


@dataclass(frozen=True)
class Plan:
    """`cases` are inputs of one call each, in the bundle's order; a bundle's later cases may be missing."""

    arch: int = 0
    """Compute capability, 90 for sm_90."""
    cases: tuple[list[dict[str, Any]], ...] = ()
    why: str = ""
    """Why nothing is compiled; empty where something is."""

    def write(self, place: Path, limits: Limits) -> None:
        """For the build container with these limits, readable there."""
        file = place / FILE
        times = {"call_s": CALL_S, "end_s": limits.wall_s - SPARE_S}
        file.write_text(
            json.dumps({"arch": self.arch, "memory_bytes": limits.memory_bytes, **times, "cases": self.cases})
        )
        file.chmod(0o444)


def architecture(bundle: Bundle, device: str, gpu: str | None) -> int:
    """That of the GPU; without one (a build needs none) the target's `sm_90`. 0: nothing is compiled."""
    if device != "cuda":
        return 0
    if gpu is not None:
        return devices.capability(gpu)
    named = re.fullmatch(r"sm_([0-9]{2,3})a?", bundle.target["architecture"])
    return int(named[1]) if named else 0


def planned(arch: int, outcome: Outcome) -> Plan:
    """From what the trusted job printed."""
    lines = outcome.stdout.tail.strip().splitlines() or outcome.stdout.head.strip().splitlines()
    try:
        answer = wire.decode(lines[-1]) if lines else {}
    except wire.WireError as error:
        answer = {"why": str(error)}
    cases = answer.get("cases")
    if outcome.status == "exited" and outcome.exit_code == 0 and isinstance(cases, list):
        return Plan(arch, tuple(cases))
    why = answer.get("why") or f"{outcome.status} {outcome.exit_code or outcome.signal or ''}".rstrip()
    return Plan(arch, why=f"the form of the inputs is not known: {wire.clean(why, 300)}")
