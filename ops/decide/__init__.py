"""Numbers in, verdict out. Pure, no torch: the runner decides with it and a replay decides again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ops.decide.calibrate import Calibration, Refusal, calibrate
from ops.decide.judge import Ruling, decide, revalidate
from ops.decide.rules import Rules, RulesError

__all__ = [
    "Calibration",
    "Refusal",
    "Rules",
    "RulesError",
    "Ruling",
    "calibrate",
    "code_digest",
    "decide",
    "revalidate",
]


def code_digest() -> str:
    """Digest over this package's own source files: which decision code an episode was decided by."""
    return _digest(Path(__file__).parent)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        for part in (path.name.encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return f"sha256:{digest.hexdigest()}"
