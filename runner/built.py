"""From the end of a build container to `Built`: what was seen outside first, and of the guest's words only what has the right form.

The words are a claim. A candidate that lies about its registers deceives the reader of a log line; one that says falsely that a
kernel does not compile refuses itself.
"""

from __future__ import annotations

import re
from typing import Any

from ops import wire
from runner.bundle import Bundle
from runner.compiling import Plan
from runner.lab import Built
from sandbox.api import Outcome

MAX_KERNELS = 64
WORST_FIRST = ("failed", "refused", "not-tried", "compiled")
NUMBERS = ("num_warps", "num_stages", "num_ctas", "shared_bytes", "registers", "local_bytes", "cubin_bytes")


def built(outcome: Outcome, bundle: Bundle, plan: Plan) -> Built:
    """The claim is believed only where the container ended by itself."""
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
        names = [wire.clean(name, 100) for name in jit[:MAX_KERNELS]] if isinstance(jit, list) else []
        compiled = compilation(claim.get("compile"), bundle, plan)
        if compiled["state"] == "failed":
            detail = f"a kernel does not compile for sm_{plan.arch}: {compiled['why']}"
            return Built(False, "build-error", detail[:2000], {"ok": False, "compile": compiled}, evidence, log)
        return Built(True, "", "", {"ok": True, "jit": names, "compile": compiled}, evidence, log)
    claim = {key: wire.clean(claim[key]) for key in ("reason", "detail") if key in claim}
    reason = claim.get("reason")
    reason = reason if reason in ("syntax", "no-entry") else "build-error"
    detail = str(
        claim.get("detail") or f"build container: {outcome.status} {outcome.exit_code or outcome.signal or ''}"
    )
    return Built(False, reason, detail[:2000], claim, evidence, log)


def compilation(said: object, bundle: Bundle, plan: Plan) -> dict[str, Any]:
    """{"state", "why", "arch", "cases": {case: {"state", "why"}}, "kernels": [...], "more_kernels"}.

    `state` is the worst of the protected cases: as with outputs, one that is not protected refuses nobody. Case by case the states
    are those of sandbox/guest/trial.py. A claim of another form is `not-tried`.
    """
    if plan.why or not plan.cases:
        return {"state": "not-tried", "why": plan.why or "there is no case to compile for"}
    strange = {"state": "not-tried", "why": f"the build container did not say: {wire.clean(said, 300)}"}
    if not isinstance(said, dict):
        return strange
    states, kernels, more = said.get("cases"), said.get("kernels"), said.get("more_kernels")
    if not isinstance(states, list) or len(states) != len(plan.cases) or not all(map(_is_state, states)):
        return strange
    if not isinstance(kernels, list) or not isinstance(more, int) or not all(map(_is_kernel, kernels[:MAX_KERNELS])):
        return strange
    left_out = {"state": "not-tried", "why": f"only the first {len(plan.cases)} cases are compiled for"}
    cases = {
        case.case_id: {"state": said["state"], "why": wire.clean(said["why"])}
        for case, said in zip(bundle.cases, [*states, *[left_out] * len(bundle.cases)], strict=False)
    }
    protected = (cases[case.case_id] for case in bundle.cases if case.protected)
    worst = min(protected, key=lambda one: WORST_FIRST.index(one["state"]))
    return {
        "state": worst["state"],
        "why": worst["why"],
        "arch": plan.arch,
        "cases": cases,
        "kernels": [_kernel(one) for one in kernels[:MAX_KERNELS]],
        "more_kernels": more,
    }


def _is_state(one: object) -> bool:
    return isinstance(one, dict) and one.get("state") in WORST_FIRST and isinstance(one.get("why"), str)


def _is_kernel(one: object) -> bool:
    return (
        isinstance(one, dict)
        and all(type(one.get(key)) is int and 0 <= one[key] < 1 << 40 for key in NUMBERS)
        and all(isinstance(one.get(key), str) for key in ("name", "signature", "cubin_sha256"))
        and re.fullmatch("[0-9a-f]{64}", one["cubin_sha256"]) is not None
    )


def _kernel(one: dict[str, Any]) -> dict[str, Any]:
    words = {"name": wire.clean(one["name"], 80), "signature": wire.clean(one["signature"], 200)}
    return {**words, **{key: one[key] for key in NUMBERS}, "cubin_sha256": one["cubin_sha256"]}
