"""A laboratory without containers: the public fake behind `runner.lab.Lab`, for stories, tests and tools.

Nothing is run. A source says in comments what it wants to be seen doing, and the numbers are made up from it:

    # fake-us: 12.5      its time per call, microseconds (100 when absent)
    # fake: wrong        one of `BEHAVIOURS`

Every pair is marked `device={"fake": true}` and an episode on it has the engine `fake`, so that no board ever places a
made-up number beside a measured one. No command line reaches this lab.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eventstore.facts import Pair, Series
from runner.bundle import Bundle, Case
from runner.lab import Arm, Built, PairPlan
from sandbox.api import SandboxFault

BEHAVIOURS = ("wrong", "crash", "build-error", "unstable", "regress", "wrong-later", "wrong-hidden", "wrong-final")
"""`wrong`, `crash`: from the first call. `wrong-later`: in the timed blocks. `wrong-hidden`: on hidden families only.
`wrong-final`: in the revalidation only.
`unstable`: times all over the place. `regress`: slow on the last case."""

_US = re.compile(rb"#\s*fake-us:\s*([0-9.]+)")
_BEHAVIOUR = re.compile(rb"#\s*fake:\s*([a-z-]+)")
_NOISE = 0.002


def source(us: float, behaviour: str = "", entry: str = "run") -> bytes:
    """A complete kernel source that the fake reads as asked. Constants keep different wishes from being duplicates."""
    wish = f"  # fake: {behaviour}" if behaviour else ""
    return (
        f"FAKE_US = {us!r}  # fake-us: {us!r}\nBEHAVIOUR = {behaviour!r}{wish}\n\n\ndef {entry}(x):\n    return x\n"
    ).encode()


@dataclass
class FakeLab:
    """Answers like a lab, at once."""

    faults: int = 0
    """The first so many calls raise SandboxFault."""
    asked: list[str] = field(default_factory=list)
    """Every call so far: `build <unit>` or `pair <unit>`."""

    def build(self, bundle: Bundle, source: bytes, unit: str) -> Built:
        self._ask(f"build {unit}")
        outcome = {"status": "exited", "exit_code": 0, "fake": True}
        if _behaviour(source) == "build-error":
            return Built(False, "build-error", "the fake was asked to fail", outcome=outcome, log=b"Traceback: fake\n")
        return Built(True, claim={"entry": bundle.entry, "fake": True}, outcome=outcome)

    def pair(self, bundle: Bundle, plan: PairPlan) -> Pair:
        self._ask(f"pair {plan.unit}")
        series = tuple(_series(bundle, plan))
        secret = hashlib.sha256(plan.unit.encode()).hexdigest()
        return Pair(unit=plan.unit, grade="bracket", series=series, secret=secret, device={"fake": True})

    def describe(self) -> dict[str, Any]:
        return {"engine": "fake", "fake": True}

    def close(self) -> None:
        """Nothing was prepared."""

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if len(self.asked) <= self.faults:
            raise SandboxFault("the fake was asked to fail")


def _series(bundle: Bundle, plan: PairPlan) -> Iterator[Series]:
    baseline, newcomer = plan.arms[0], plan.arms[-1]
    cases = bundle.cases
    for arm in plan.arms[:-1]:
        yield from (_one(plan.unit, arm, case, -1, plan.verify_calls) for case in cases)
    yield from (_one(plan.unit, baseline, case, -2, plan.alone_calls) for case in cases)
    yield from (_one(plan.unit, newcomer, case, -1, plan.verify_calls) for case in cases)
    for family in plan.families:
        yield from (_one(plan.unit, arm, case, -1, 1, family=family) for arm in plan.arms for case in cases)
    if _behaviour(newcomer.source) in ("wrong", "crash"):
        return
    for block in range(plan.blocks):
        yield from (_one(plan.unit, arm, case, block, plan.calls) for arm in plan.arms for case in cases)
    yield from (_one(plan.unit, baseline, case, -3, plan.alone_calls) for case in cases)


def _one(unit: str, arm: Arm, case: Case, block: int, calls: int, *, family: str = "") -> Series:
    why = _why(arm.source, unit, block, family)
    slow = 3.0 if _behaviour(arm.source) == "regress" and not case.protected else 1.0
    spread = 0.6 if _behaviour(arm.source) == "unstable" else _NOISE
    typical = 1000 * _us(arm.source) * slow * (1.0 + _NOISE * _noise(unit, arm.name))
    noise = [spread * _noise(unit, arm.name, case.case_id, block, n) for n in range(calls)]
    ns = tuple(max(1, round(typical * (1.0 + one))) for one in noise)
    worst = tuple(2.0 if why == "wrong" else None if why else 0.1 for _ in ns)
    return Series(arm=arm.name, case=case.case_id, block=block, ns=ns, why=(why,) * calls, worst=worst, family=family)


def _why(source: bytes, unit: str, block: int, family: str) -> str:
    behaviour = _behaviour(source)
    if behaviour == "crash":
        return "guest-died"
    late = behaviour == "wrong-later" and block >= 0
    hidden = behaviour == "wrong-hidden" and bool(family)
    final = behaviour == "wrong-final" and re.search(r"-f[0-9]+-v", unit) is not None
    return "wrong" if behaviour == "wrong" or late or hidden or final else ""


def _us(source: bytes) -> float:
    found = _US.search(source)
    return float(found[1]) if found else 100.0


def _behaviour(source: bytes) -> str:
    found = _BEHAVIOUR.search(source)
    return found[1].decode() if found else ""


def _noise(unit: str, *key: object) -> float:
    """Within -1 and 1, and the same again for the same question. A unit's attempt counts for nothing."""
    text = repr((re.sub(r"-v[0-9]+$", "", unit), *key)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") / 2**63 - 1.0
