"""Templates and references, run: right for every dtype and odd size, in the judge's own terms; and every knob is alive.

Everything that needs torch runs in the guest environment: one process per test, in Triton's interpreter or compiling for a
named GPU without having one.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ops import registry

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("ASSAY_GUEST_PYTHON", str(ROOT / ".guest" / "bin" / "python"))
PROGRAMS = Path(__file__).parent / "programs"
ROW_OPERATORS = ("rmsnorm", "fused_bias_gelu")
DTYPES = ("fp16", "bf16", "fp32")
FAMILIES = {
    "rmsnorm": ("", "heavy-tail", "large", "near-zero", "scaled-rows", "outlier-at-end"),
    "fused_bias_gelu": ("", "heavy-tail", "large", "near-zero", "ramp", "outlier-at-end"),
    "matmul_epilogue": ("", "heavy-tail", "large", "near-zero", "positive", "outlier-at-end"),
}
SMALL = {
    "rmsnorm": {"B": 1, "T": 9, "D": 129},
    "fused_bias_gelu": {"B": 1, "T": 9, "D": 129},
    "matmul_epilogue": {"B": 1, "M": 33, "N": 65, "K": 511},
}
TEMPLATES = [(name, template) for name in FAMILIES for template in registry.get(name).templates]

pytestmark = pytest.mark.guest


def program(script: str, jobs: Sequence[dict[str, Any]], tmp_path: Path, **env: str) -> Any:
    """What a guest program answers to `jobs`; its environment holds nothing that we did not put there."""
    base = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(
        [PYTHON, str(PROGRAMS / script)],
        input=json.dumps(jobs),
        env={**base, **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def judged(jobs: Sequence[dict[str, Any]], tmp_path: Path) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = program("judged.py", jobs, tmp_path, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    return findings


def compiled(jobs: Sequence[dict[str, Any]], tmp_path: Path) -> list[dict[str, Any]]:
    """Without line numbers: they hold the source's path, which differs from candidate to candidate."""
    kernels: list[dict[str, Any]] = program("compiled.py", jobs, tmp_path, TRITON_DISABLE_LINE_INFO="1")
    return kernels


def job(name: str, template: str, case: dict[str, Any], family: str = "", **more: Any) -> dict[str, Any]:
    """One kernel on one case; `knobs` and `replace` in `more` change its source."""
    operator = registry.get(name)
    source = operator.render(template, more.pop("knobs", {})).decode()
    for old, new in more.pop("replace", {}).items():
        assert old in source
        source = source.replace(old, new)
    return {"task": str(ROOT / "ops" / name / "reference.py"), "source": source, "case": case, "family": family, **more}


def bound(name: str, dtype: str) -> dict[str, float]:
    limits: dict[str, float] = registry.get(name).contract.tolerance.per_dtype[dtype].model_dump()
    return limits


def problems(jobs: Sequence[dict[str, Any]], findings: Sequence[dict[str, Any]]) -> list[Any]:
    """Jobs that were not right, or went beyond the contract's own bound."""
    return [
        (each["case"], each["family"], finding)
        for each, finding in zip(jobs, findings, strict=True)
        if finding["why"] or not finding["worst"] <= 1 or not finding.get("over_bound", 0) <= 1
    ]


def test_row_templates_are_right_for_every_dtype_and_odd_size(tmp_path: Path) -> None:
    jobs = [
        job(name, template, {"B": 1, "T": 3, "D": size, "dtype": dtype}, bound=bound(name, dtype))
        for name, template in TEMPLATES
        if name in ROW_OPERATORS
        for dtype in DTYPES
        for size in (1, 63, 65, 4096, 8191)
    ]
    assert problems(jobs, judged(jobs, tmp_path)) == []


def test_matmul_is_right_for_every_dtype_where_no_size_is_a_multiple_of_its_tile(tmp_path: Path) -> None:
    jobs = [
        job("matmul_epilogue", "tiled", {**shape, "dtype": dtype}, bound=bound("matmul_epilogue", dtype), knobs=knobs)
        for dtype in DTYPES
        for shape, knobs in (
            ({"B": 1, "M": 1, "N": 1, "K": 1}, {"BLOCK_K": 32}),
            ({"B": 3, "M": 43, "N": 130, "K": 65}, {}),
            ({"B": 1, "M": 65, "N": 257, "K": 33}, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}),
        )
    ]
    assert problems(jobs, judged(jobs, tmp_path)) == []


def test_every_point_of_the_cpu_spaces_is_right(tmp_path: Path) -> None:
    jobs = [
        job(name, point.template, {**SMALL[name], "dtype": "fp16"}, knobs=point.knobs)
        for name in FAMILIES
        for point in registry.get(name).space("cpu")
    ]
    assert problems(jobs, judged(jobs, tmp_path)) == []


def test_templates_are_right_on_every_hidden_family(tmp_path: Path) -> None:
    jobs = [
        job(name, template, {**SMALL[name], "dtype": dtype}, family)
        for name, template in TEMPLATES
        for dtype in DTYPES
        for family in FAMILIES[name]
    ]
    assert problems(jobs, judged(jobs, tmp_path)) == []


def test_templates_take_inputs_that_are_not_contiguous(tmp_path: Path) -> None:
    jobs = [job(name, template, {**SMALL[name], "dtype": "fp32"}, strided=True) for name, template in TEMPLATES]
    assert problems(jobs, judged(jobs, tmp_path)) == []


MUTANTS = {
    ("rmsnorm", "one_row", "near-zero"): {"/ D + eps)": "/ D)"},
    ("rmsnorm", "one_row", "heavy-tail"): {"/ D + eps)": "/ BLOCK_SIZE + eps)"},
    ("rmsnorm", "one_row", ""): {"x * scale * weight": "x * scale"},
    ("rmsnorm", "one_row", "large"): {"squares += x * x": "squares += (x * x).to(tl.float16)"},
    ("rmsnorm", "one_row", "outlier-at-end"): {"mask=column < D, other": "mask=column < D - 1, other"},
    ("rmsnorm", "row_block", "scaled-rows"): {"axis=1, keep_dims=True": "axis=0, keep_dims=True"},
    ("fused_bias_gelu", "one_row", ""): {"0.044715": "0.0455"},
    ("fused_bias_gelu", "one_row", "near-zero"): {"gelu_tanh(x + bias)": "gelu_tanh(x - bias)"},
    ("fused_bias_gelu", "one_row", "outlier-at-end"): {"inside = column < D": "inside = column < D - 1"},
    ("fused_bias_gelu", "column_strip", "large"): {
        "u / (1.0 + tl.exp(-1.5957691216057308 * (u + 0.044715 * u * u * u)))": (
            "u * (1.0 - 1.0 / (tl.exp(1.5957691216057308 * (u + 0.044715 * u * u * u)) + 1.0)) * (tl.exp(u) / tl.exp(u))"
        )
    },
    ("fused_bias_gelu", "column_strip", "ramp"): {"tl.minimum(first + ROWS, rows)": "tl.minimum(first + 8, rows)"},
    ("matmul_epilogue", "tiled", "outlier-at-end"): {"left = K - start": "left = K - start - 1"},
    ("matmul_epilogue", "tiled", "near-zero"): {"gelu_tanh(total + bias)": "gelu_tanh(total)"},
    ("matmul_epilogue", "tiled", "positive"): {
        "BLOCK_K = 64": "BLOCK_K = 16",
        "tl.dot(a, b, total,": "tl.dot(a, b, total.to(tl.float16).to(tl.float32),",
    },
    ("matmul_epilogue", "tiled", "heavy-tail"): {"gelu_tanh(total + bias)": "total + bias"},
    ("matmul_epilogue", "tiled", ""): {"mask=(m < M) & (n < N))": "mask=(m < M) & (n < N - 1))"},
}
"""Kernels with one thing wrong, and the family that must show it."""


def test_kernels_with_one_thing_wrong_are_found_out(tmp_path: Path) -> None:
    jobs = [
        job(name, template, {**SMALL[name], "dtype": "fp16"}, family, replace=replace)
        for (name, template, family), replace in MUTANTS.items()
    ]
    findings = dict(zip(MUTANTS, judged(jobs, tmp_path), strict=True))
    survivors = [key for key, found in findings.items() if found["why"] not in ("wrong", "unwritten", "nan")]
    assert survivors == []


def test_references_are_within_one_unit_in_the_last_place_of_independent_ones(tmp_path: Path) -> None:
    jobs = [
        {
            "task": str(ROOT / "ops" / name / "reference.py"),
            "case": {**SMALL[name], "dtype": dtype},
            "family": family,
        }
        for name in FAMILIES
        for dtype in DTYPES
        for family in FAMILIES[name]
    ]
    far = [(each, found) for each, found in zip(jobs, program("exact.py", jobs, tmp_path), strict=True) if found > 1]
    assert far == []


@pytest.mark.parametrize("name", FAMILIES)
def test_the_hidden_families_are_those_that_are_tested(name: str) -> None:
    text = registry.get(name).reference.decode()
    assert [family for family in FAMILIES[name] if f'"{family}": family(' not in text] == [""]
    assert text.count(": family(") == len(FAMILIES[name]) - 1


def variants(name: str, template: str) -> list[dict[str, Any]]:
    """The template's middle point, then every other value of each knob on its own."""
    axes = registry.get(name).contract.space(template, "cuda")
    middle = {knob: values[(len(values) - 1) // 2] for knob, values in axes.items()}
    return [middle] + [
        {**middle, knob: value} for knob, values in axes.items() for value in values if value != middle[knob]
    ]


def test_every_knob_reaches_the_compiled_kernel_and_changes_it(tmp_path: Path) -> None:
    asked = [(name, template, knobs) for name, template in TEMPLATES for knobs in variants(name, template)]
    jobs = [
        job(name, template, {**registry.get(name).contract.shapes["cpu"], "dtype": "fp16"}, knobs=knobs)
        for name, template, knobs in asked
    ]
    kernels = compiled(jobs, tmp_path)
    launched = [(kernel["num_warps"], kernel["num_stages"]) for kernel in kernels]
    assert launched == [(knobs["num_warps"], knobs["num_stages"]) for _, _, knobs in asked]
    assert len({kernel["cubin"] for kernel in kernels}) == len(asked)


def test_templates_compile_in_every_dtype_for_sizes_that_are_multiples_and_that_are_not(tmp_path: Path) -> None:
    jobs = [
        job(name, template, {**registry.get(name).contract.shapes[shape], "dtype": dtype})
        for name, template in TEMPLATES
        for dtype in DTYPES
        for shape in ("cpu", "odd")
    ]
    kernels = compiled(jobs, tmp_path)
    assert len({kernel["cubin"] for kernel in kernels}) == len(jobs)
