"""Kernels compiled without a GPU by calling their wrapper on CPU tensors: the four states, and what is recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("ASSAY_GUEST_PYTHON", str(ROOT / ".guest" / "bin" / "python"))
X = {"shape": [64, 64], "dtype": "float16"}

pytestmark = pytest.mark.guest

HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + 1.0)

@triton.jit
def long(x_ptr, y_ptr, K, WIDE: tl.constexpr):
    m, k = tl.arange(0, 64), tl.arange(0, WIDE)
    total = tl.zeros([64, 64], tl.float32)
    for start in range(0, K, WIDE):
        a = tl.load(x_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(x_ptr + (start + k)[:, None] * 64 + m[None, :])
        total = tl.dot(a, b, total)
    tl.store(y_ptr + m[:, None] * 64 + m[None, :], total)

@triton.jit
def wrong(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), there_is_no_such_name)
"""

SOURCES = {
    "compiled": "def run(x):\n    add[(1,)](x, torch.empty_like(x), 64, num_warps=2, num_stages=3)\n",
    "no kernel": "def run(x):\n    return x + 1\n",
    "not on a cpu": "def run(x):\n    assert x.is_cuda, 'x must be on a GPU'\n    add[(1,)](x, x, 64)\n",
    "type error": "def run(x):\n    wrong[(1,)](x, 64)\n",
    "shared memory": "def run(x):\n    long[(1,)](x, x, 4096, 256, num_stages=8)\n",
    "falls back": """
def run(x):
    try:
        long[(1,)](x, x, 4096, 256, num_stages=8)
    except Exception:
        long[(1,)](x, x, 4096, 64, num_stages=2)
""",
    "looks": "def run(x):\n    add[(1,)](x, x, int(x.sum().item()))\n",
    "looks elsewhere": "def run(x):\n    add[(1,)](x, x, len(set(x[0].tolist())) - 1)\n",
    "asks too much": "def run(x):\n    triton.runtime.driver.active.utils.get_voltage()\n",
    "too much memory": "def run(x):\n    torch.empty(3 << 30, dtype=torch.uint8)\n",
    "for ever": "def run(x):\n    add[(1,)](x, x, 64)\n    while True:\n        pass\n",
    "dies": "def run(x):\n    import os\n    os.abort()\n",
    "autotuned": """
tuned = triton.autotune([triton.Config({}, num_warps=w) for w in (1, 2, 4)], key=[])(add)

def run(x):
    tuned[(1,)](x, x, 64)
""",
    "at import": """
WHERE = triton.runtime.driver.active.get_active_torch_device()
WIDTH = triton.runtime.driver.active.utils.get_device_properties(0)["warpSize"]

def run(x):
    add[(1,)](x, torch.empty(64, device=WHERE), 2 * WIDTH)
""",
    "spills": """
@triton.jit
def crowded(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    total = tl.cumsum(x.to(tl.float32), 0)
    for _ in range(4):
        total += tl.cumsum(total * x, 0)
    tl.store(y_ptr + at, total)

def run(x):
    crowded[(1,)](x, torch.empty_like(x), 4096, num_warps=1, maxnreg=32)
""",
}
STATES = {
    "compiled": ("compiled", ""),
    "no kernel": ("compiled", ""),
    "not on a cpu": ("refused", "AssertionError: x must be on a GPU"),
    "type error": ("failed", "there_is_no_such_name is not defined"),
    "shared memory": ("failed", "out of resource: shared memory"),
    "falls back": ("compiled", ""),
    "looks": ("not-tried", "looked at values"),
    "looks elsewhere": ("not-tried", "looked at values"),
    "asks too much": ("not-tried", "the stub driver has no 'get_voltage'"),
    "too much memory": ("not-tried", "DefaultCPUAllocator"),
    "for ever": ("not-tried", "did not end in time"),
    "dies": ("refused", "ended (-6)"),
    "autotuned": ("compiled", ""),
    "at import": ("compiled", ""),
    "spills": ("compiled", ""),
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All sources, tried in one process of the guest's interpreter."""
    folder = tmp_path_factory.mktemp("trial")
    (folder / "cubins").mkdir()
    jobs = [
        {"source": HEAD + SOURCES[name], "cases": [[X]], "seconds": 15 if name == "for ever" else 120}
        for name in SOURCES
    ]
    jobs.append({"source": HEAD + SOURCES["looks"], "cases": [[X], [X]]})
    ran = subprocess.run(
        [PYTHON, "-I", str(Path(__file__).parent / "programs" / "tried.py")],
        input=json.dumps({"guest": str(ROOT / "sandbox/guest"), "scratch": str(folder / "cubins"), "jobs": jobs}),
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    return {**said, "answers": dict(zip([*SOURCES, "two cases"], said["answers"], strict=True))}


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_ends_in_its_state(tried: dict[str, Any], name: str) -> None:
    (case,) = tried["answers"][name]["cases"]
    state, words = STATES[name]
    assert case["state"] == state, case
    assert words in case["why"]
    assert (case["why"] == "") == (words == "")


def test_what_is_recorded_of_a_kernel(tried: dict[str, Any]) -> None:
    (recorded,) = tried["answers"]["compiled"]["kernels"]
    kernel = dict(recorded)
    assert re.fullmatch("[0-9a-f]{64}", kernel.pop("cubin_sha256"))
    assert kernel.pop("cubin_bytes") > 1000
    assert 8 <= kernel.pop("registers") <= 255
    assert kernel == {
        "name": "add",
        "signature": "x_ptr:*fp16:16, y_ptr:*fp16:16, N=64",
        "arch": 90,
        "num_warps": 2,
        "num_stages": 3,
        "num_ctas": 1,
        "shared_bytes": 0,
        "local_bytes": 0,
    }


def test_every_configuration_of_an_autotuned_kernel_is_compiled(tried: dict[str, Any]) -> None:
    kernels = tried["answers"]["autotuned"]["kernels"]
    assert [(one["name"], one["num_warps"]) for one in kernels] == [("add", 1), ("add", 2), ("add", 4)]


def test_what_was_compiled_before_the_time_was_over_is_kept(tried: dict[str, Any]) -> None:
    assert [one["name"] for one in tried["answers"]["for ever"]["kernels"]] == ["add"]


def test_only_what_fits_is_recorded_of_a_wrapper_that_falls_back(tried: dict[str, Any]) -> None:
    (kernel,) = tried["answers"]["falls back"]["kernels"]
    assert "WIDE=64" in kernel["signature"]
    assert 0 < kernel["shared_bytes"] <= 232448


def test_each_case_has_a_state_of_its_own(tried: dict[str, Any]) -> None:
    assert [case["state"] for case in tried["answers"]["two cases"]["cases"]] == ["not-tried", "not-tried"]


def test_registers_and_local_memory_are_those_that_cuobjdump_prints(tried: dict[str, Any]) -> None:
    kernels = [one for answer in tried["answers"].values() for one in answer["kernels"]]
    ours = {(one["name"], one["registers"], one["local_bytes"]) for one in kernels}
    theirs = set()
    for file, name in tried["cubins"]:
        told = subprocess.run([tried["cuobjdump"], "--dump-resource-usage", file], capture_output=True, text=True)
        found = re.search(rf"Function {name}:\s+REG:(\d+) STACK:(\d+) ", told.stdout)
        assert found, told
        theirs.add((name, int(found[1]), int(found[2])))
    assert ours == theirs
    assert any(local > 0 for _, _, local in ours), "no kernel here spills: the comparison shows nothing"
