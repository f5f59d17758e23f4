"""What the host makes of a build container's end: outside facts first, then only words of the right form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner import compiling
from runner.built import built, compilation
from runner.bundle import Bundle, from_files
from runner.compiling import Plan, architecture, planned
from sandbox.api import Captured, Limits, Outcome, Status

CASES = [{"case_id": "main"}, {"case_id": "second"}, {"case_id": "extra", "protected": False}]
INPUTS = [{"shape": [4], "dtype": "float16"}, {"value": 2}]
KERNEL = {
    "name": "add",
    "signature": "x_ptr:*fp16, N=64",
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1,
    "shared_bytes": 0,
    "registers": 16,
    "local_bytes": 0,
    "cubin_bytes": 4000,
    "cubin_sha256": "ab" * 32,
}
GOOD = {"state": "compiled", "why": ""}


def bundle(arch: str = "sm_90") -> Bundle:
    return from_files(
        {
            "kernel.py": b"def run(x):\n    return x\n",
            "task.py": b"ENTRY = 'run'\ndef make_inputs(case, generator, device): ...\ndef reference(x): ...\n",
            "cases.json": json.dumps(CASES).encode(),
            "target.json": json.dumps({"backend": "triton", "architecture": arch}).encode(),
        }
    )


PLAN = Plan(90, (INPUTS, INPUTS, INPUTS))


def ended(said: object, status: Status = "exited", exit_code: int | None = 0) -> Outcome:
    raw = b"printed by the candidate\n" + json.dumps(said).encode() + b"\n"
    return Outcome(status, exit_code, stdout=Captured(len(raw), raw, raw))


def said(*states: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"cases": list(states), "kernels": [KERNEL], "more_kernels": 0, **more}


def test_what_compiled_is_in_the_claim() -> None:
    found = built(ended({"ok": True, "jit": ["add"], "compile": said(GOOD, GOOD, GOOD)}), bundle(), PLAN)
    assert found.ok
    assert found.claim == {
        "ok": True,
        "jit": ["add"],
        "compile": {
            "state": "compiled",
            "why": "",
            "arch": 90,
            "cases": {"main": GOOD, "second": GOOD, "extra": GOOD},
            "kernels": [KERNEL],
            "more_kernels": 0,
        },
    }


@pytest.mark.parametrize("state", ["refused", "not-tried"])
def test_what_the_stub_cannot_do_refuses_nobody(state: str) -> None:
    states = ({"state": state, "why": "no"}, GOOD, GOOD)
    found = built(ended({"ok": True, "jit": [], "compile": said(*states)}), bundle(), PLAN)
    assert (found.ok, found.claim["compile"]["state"], found.claim["compile"]["why"]) == (True, state, "no")


def test_a_protected_case_that_does_not_compile_is_a_build_error_and_says_why() -> None:
    failed = {"state": "failed", "why": "CompilationError: at 2:3: x"}
    refused = {"state": "refused", "why": "not on a CPU"}
    found = built(ended({"ok": True, "jit": [], "compile": said(refused, failed, GOOD)}), bundle(), PLAN)
    assert (found.ok, found.reason) == (False, "build-error")
    assert found.detail == "a kernel does not compile for sm_90: CompilationError: at 2:3: x"
    assert found.claim["compile"]["cases"]["second"] == failed


def test_of_two_failures_the_first_is_told() -> None:
    states = [{"state": "failed", "why": why} for why in ("first", "second")]
    assert compilation(said(*states, GOOD), bundle(), PLAN)["why"] == "first"


def test_a_case_that_is_not_protected_refuses_nobody() -> None:
    failed = {"state": "failed", "why": "x"}
    found = built(ended({"ok": True, "jit": [], "compile": said(GOOD, GOOD, failed)}), bundle(), PLAN)
    assert (found.ok, found.claim["compile"]["state"]) == (True, "compiled")
    assert found.claim["compile"]["cases"]["extra"] == failed


@pytest.mark.parametrize(
    "strange",
    [
        None,
        "our own step failed",
        [],
        said(GOOD, GOOD),
        said(GOOD, GOOD, {"state": "wonderful", "why": ""}),
        said(GOOD, GOOD, {"state": "failed"}),
        said(GOOD, GOOD, {"state": ["failed"], "why": ""}),
        said(GOOD, GOOD, GOOD, kernels={}),
        said(GOOD, GOOD, GOOD, kernels=[{**KERNEL, "registers": -1}]),
        said(GOOD, GOOD, GOOD, kernels=[{**KERNEL, "registers": True}]),
        said(GOOD, GOOD, GOOD, kernels=[{**KERNEL, "cubin_sha256": "x"}]),
        said(GOOD, GOOD, GOOD, kernels=[{**KERNEL, "name": None}]),
        said(GOOD, GOOD, GOOD, more_kernels="many"),
    ],
)
def test_a_claim_of_another_form_is_none(strange: object) -> None:
    found = built(ended({"ok": True, "jit": [], "compile": strange}), bundle(), PLAN)
    assert (found.ok, found.claim["compile"]["state"]) == (True, "not-tried")
    assert "kernels" not in found.claim["compile"]


def test_words_are_bounded_and_on_one_line() -> None:
    nasty = {**KERNEL, "name": "a\nb\x1b[2J" + "x" * 500, "unknown": "y" * 500}
    found = compilation(
        said(GOOD, GOOD, {"state": "refused", "why": "u\nv" * 5000}, kernels=[nasty] * 100), bundle(), PLAN
    )
    assert len(found["kernels"]) == 64
    assert set(found["kernels"][0]) == set(KERNEL)
    assert len(found["kernels"][0]["name"]) == 80
    assert found["kernels"][0]["name"].startswith("a\\x0ab\\x1b[2J")
    assert len(found["cases"]["extra"]["why"]) == 2000


def test_cases_beyond_those_that_were_planned_are_not_tried() -> None:
    found = compilation(said(GOOD), bundle(), Plan(90, (INPUTS,)))
    assert found["cases"]["second"] == {"state": "not-tried", "why": "only the first 1 cases are compiled for"}
    assert found["state"] == "not-tried"


@pytest.mark.parametrize(
    ("status", "reason"), [("timeout", "build-timeout"), ("oom", "build-oom"), ("output-limit", "output-limit")]
)
def test_what_was_seen_from_outside_comes_first(status: Status, reason: str) -> None:
    found = built(ended({"ok": True, "jit": [], "compile": said(GOOD, GOOD, GOOD)}, status, None), bundle(), PLAN)
    assert (found.ok, found.reason, found.claim) == (False, reason, {})


@pytest.mark.parametrize("code", [1, 139])
def test_a_good_claim_of_a_container_that_failed_is_not_believed(code: int) -> None:
    found = built(ended({"ok": True, "jit": []}, exit_code=code), bundle(), PLAN)
    assert (found.ok, found.reason) == (False, "build-error")


def test_nothing_is_compiled_for_the_interpreter_or_an_unnamed_architecture() -> None:
    assert architecture(bundle(), "cpu", None) == 0
    assert architecture(bundle("cpu-interpreter"), "cuda", None) == 0
    assert architecture(bundle("sm_90a"), "cuda", None) == 90
    assert architecture(bundle("sm_120"), "cuda", None) == 120
    found = built(ended({"ok": True, "jit": []}), bundle(), Plan(why="the interpreter compiles nothing"))
    assert found.claim["compile"] == {"state": "not-tried", "why": "the interpreter compiles nothing"}


def test_a_gpu_says_itself_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.devices, "capability", {"GPU-1": 103}.__getitem__)
    assert architecture(bundle("sm_90"), "cuda", "GPU-1") == 103


def test_a_plan_is_what_the_trusted_job_says_or_why_there_is_none(tmp_path: Path) -> None:
    assert planned(90, ended({"cases": [INPUTS] * 3})) == PLAN
    assert planned(90, ended({"why": "task.py: make_inputs: KeyError"})) == Plan(
        90, why="the form of the inputs is not known: task.py: make_inputs: KeyError"
    )
    assert planned(90, ended({"cases": [INPUTS]}, "oom", None)).why == "the form of the inputs is not known: oom"
    assert planned(90, Outcome("exited", 1)).why == "the form of the inputs is not known: exited 1"
    PLAN.write(tmp_path, Limits(wall_s=60.0, memory_bytes=1 << 30))
    written = json.loads((tmp_path / compiling.FILE).read_text())
    assert written == {
        "arch": 90,
        "memory_bytes": 1 << 30,
        "call_s": 30.0,
        "end_s": 50.0,
        "cases": [INPUTS] * 3,
    }
