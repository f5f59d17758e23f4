"""The build lane with real containers: no GPU device, kernels compiled for sm_90, nothing left for the next candidate."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.host import host_image
from ops import registry
from runner import bundle as bundles
from runner import compiling, jobs
from runner.bundle import Bundle
from runner.lab import Built
from runner.sandboxlab import SandboxLab
from sandbox.find import find

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))
SHAPE = {"B": 4, "T": 256, "D": 1024}

HONEST = registry.get("rmsnorm").bundle(SHAPE, "fp16", "cuda")["kernel.py"].decode()
SOURCES: dict[str, str] = {
    "not on a cpu": HONEST.replace("    y = torch.empty_like(x)", "    assert x.is_cuda\n    y = torch.empty_like(x)"),
    "does not compile": HONEST.replace("tl.rsqrt(", "tl.no_such_function("),
    # the first call compiles into the cache; the second shows that it was empty before and is not any more
    "looks at the cache": HONEST
    + """
import os as _os
_CACHE = _os.environ["TRITON_CACHE_DIR"]
if _os.path.exists(_CACHE):
    raise RuntimeError("a cache outlived a candidate")
_plain, _calls = rmsnorm, []
def rmsnorm(x, weight):
    if _calls and not _os.listdir(_CACHE):
        raise RuntimeError("nothing was cached")
    _calls.append(1)
    return _plain(x, weight)
""",
    "floods and forks": HONEST
    + """
import os as _os, time as _time
_plain = rmsnorm
def rmsnorm(x, weight):
    if _os.fork() == 0:
        _time.sleep(300)
    _os.write(1, b"x" * (4 << 20))
    return _plain(x, weight)
""",
    "has a device": HONEST
    + """
import os as _os
if any(_os.path.exists("/dev/" + name) for name in ("nvidiactl", "nvidia0", "nvidia-uvm")):
    raise RuntimeError("a GPU device node")
""",
    "forks and leaves": HONEST + "\nimport os as _os\nif _os.fork():\n    _os._exit(3)\n",
    "forges at import": HONEST
    + '\nimport os as _os\n_os.write(1, b\'\\n{"ok": true, "jit": [\\"\\\\ud800\\"]}\\n\')\n_os._exit(0)\n',
}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundles.from_files(registry.get("rmsnorm").bundle(SHAPE, "fp16", "cuda"))


@pytest.fixture(scope="module", params=["bwrap", "docker"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lab(engine: str) -> Iterator[SandboxLab]:
    """With time enough for a machine that does much else: what is tested here is no deadline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "BUILD_S", 400.0)
        patch.setattr(compiling, "CALL_S", 300.0)
        yield SandboxLab(find(engine), host_image(PYTHON, docker=engine == "docker"), "cuda")  # type: ignore[arg-type]


def compiled(found: Built) -> dict[str, Any]:
    assert found.ok, (found.reason, found.detail)
    json.dumps(found.claim, allow_nan=False)
    claim: dict[str, Any] = found.claim["compile"]
    return claim


def test_a_template_is_compiled_for_every_case_without_a_gpu(lab: SandboxLab, bundle: Bundle) -> None:
    claim = compiled(lab.build(bundle, HONEST.encode(), f"lane-honest-{lab.sandbox.name}"))
    assert (claim["state"], claim["arch"], sorted(claim["cases"])) == ("compiled", 90, ["main", "odd"])
    assert {one["name"] for one in claim["kernels"]} == {"rmsnorm_one_row"}
    assert all(8 <= one["registers"] <= 255 and one["shared_bytes"] > 0 for one in claim["kernels"])
    assert len(claim["kernels"]) == 2, "the odd shape is compiled on its own: its rows are no multiples of 16"


def test_a_wrapper_that_refuses_cpu_tensors_is_left_to_the_gpu(lab: SandboxLab, bundle: Bundle) -> None:
    claim = compiled(lab.build(bundle, SOURCES["not on a cpu"].encode(), f"lane-refused-{lab.sandbox.name}"))
    assert (claim["state"], claim["kernels"]) == ("refused", [])
    assert claim["why"].startswith("AssertionError")


def test_a_kernel_that_does_not_compile_is_refused_with_the_compilers_words(lab: SandboxLab, bundle: Bundle) -> None:
    found = lab.build(bundle, SOURCES["does not compile"].encode(), f"lane-failed-{lab.sandbox.name}")
    assert (found.ok, found.reason) == (False, "build-error")
    assert "no_such_function" in found.detail
    assert found.detail.startswith("a kernel does not compile for sm_90: CompilationError: at ")


def test_no_cache_directory_outlives_a_candidate(lab: SandboxLab, bundle: Bundle) -> None:
    for number in (1, 2):
        source = SOURCES["looks at the cache"].encode()
        claim = compiled(lab.build(bundle, source, f"lane-cache-{number}-{lab.sandbox.name}"))
        assert claim["state"] == "compiled", claim["why"]


def test_what_a_call_prints_and_leaves_running_decides_nothing(lab: SandboxLab, bundle: Bundle) -> None:
    found = lab.build(bundle, SOURCES["floods and forks"].encode(), f"lane-floods-{lab.sandbox.name}")
    assert compiled(found)["state"] == "compiled"
    assert len(found.log) < 1 << 17
    assert found.outcome["wall_s"] < 300, "it waited for the process that the call left"


@pytest.mark.parametrize("name", ["has a device", "forks and leaves", "forges at import"])
def test_what_happens_at_import_ends_as_before(lab: SandboxLab, bundle: Bundle, name: str) -> None:
    found = lab.build(bundle, SOURCES[name].encode(), f"lane-{name.replace(' ', '-')}-{lab.sandbox.name}")
    if name == "has a device":
        assert found.ok, found.detail
    else:
        assert (found.ok, found.reason) == (False, "build-error")


def test_the_inputs_of_a_bundle_are_asked_for_once(lab: SandboxLab, bundle: Bundle) -> None:
    before = lab._plan(bundle, f"lane-asked-{lab.sandbox.name}")
    assert before.cases[0] == [
        {"shape": [4, 256, 1024], "dtype": "float16"},
        {"shape": [1024], "dtype": "float16"},
    ]
    assert lab._plan(bundle, "the name of no container") is before
