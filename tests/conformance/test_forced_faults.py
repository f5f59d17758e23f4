"""Candidates that try to make *us* fail, or to profit from our shim: each must end as its own failure, or gain nothing.

A fault is about us and three of them end an episode, so a candidate that can force one can stop a search. All of these were found
by an attacker who had read the source.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import median

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cheats

from eventstore.facts import CandidateMeasured, Pair
from images.host import host_image
from ops import registry
from ops.decide.reasons import of_call
from ops.decide.stats import observe
from runner import bundle as bundles
from runner.bundle import Bundle
from runner.lab import Arm, PairPlan
from runner.sandboxlab import SandboxLab
from sandbox.find import find

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))
RMSNORM = bundles.from_files(registry.get("rmsnorm").bundle(cheats.SHAPE, "fp32", "cpu"))

SOCKET = """
import sys as _sys
_frame = _sys._getframe()
while _frame and "sock" not in _frame.f_locals:
    _frame = _frame.f_back
_sock = _frame.f_locals["sock"] if _frame else None
"""

PARKED_OUTPUT = """
# the write ends of stdout and stderr stay open in the judge's queue, after this process is dead
import array as _array, socket as _socket
if _sock:
    for _ in range(3):
        _sock.sendmsg([b'{"x":1}'], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _array.array("i", [1, 2]))])
"""

HOARD = """
# every block stays mapped, its descriptors open, and old slots are written: whose memory is it?
import os as _os, sys as _sys
_kept = []
_compute = rmsnorm
def rmsnorm(x, weight):
    frame = _sys._getframe(1)
    while frame and "slots" not in frame.f_locals:
        frame = frame.f_back
    if frame:
        shim = frame.f_locals
        _kept.append((shim["target"].base, x, weight, _os.dup(shim["slot_fd"]), _os.dup(shim["source"].fd)))
        for slot, *_ in _kept:
            slot[:64].fill_(1)
    return _compute(x, weight)
"""

STALE_INPUT = """
# does the memory of an earlier call's input tell anything of the next one?
_kept = []
_compute = rmsnorm
def rmsnorm(x, weight):
    if "wire" in __import__("sys").modules:
        _kept.append(x)
        _kept[0].sum()
    return _compute(x, weight)
"""

AT_LOAD = {
    "infinity": b'{"ok":1e999}',
    "wide-integer": b'{"ok":99999999999999999999}',
    "half-character": b'{"error":"\\\\udcff"}',
    "nested": b'{"a":' * 8 + b"1" + b"}" * 8,
    "large": b'{"a":"' + b"x" * 131_000 + b'"}',
    "growing": b'{"error":"' + "€".encode() * 40_000 + b'"}',
}

SOURCES = {
    **{name: cheats.HONEST + SOCKET + f"if _sock:\n    _sock.send({raw!r})\n" for name, raw in AT_LOAD.items()},
    "parked-output": cheats.HONEST + SOCKET + PARKED_OUTPUT,
    "role-by-name": cheats.HONEST
    + "\nif 'candidate' in open('/proc/self/mountinfo').read():\n    raise SystemExit('I know my role')\n",
}

MUTATING = {
    "task.py": b"""import torch
ENTRY = "f"
MUTATES = (0,)
def make_inputs(case, generator, device):
    return [torch.randn(256, 1024, generator=generator, device=device)]
def reference(x):
    return [torch.tanh(x)]
""",
    "kernel.py": b"""import torch
def f(x):
    for _ in range(40):
        y = torch.tanh(x)
    x.copy_(y)
""",
}
BEFORE_T0 = """
import sys as _sys
_main = _sys.modules["__main__"]
if hasattr(_main, "wire"):
    import blocks, os, wire
    def call(function, order, slot_fd, sock, device, *_):
        target = blocks.adopt(device, slot_fd, order["out_bytes"], writable=True)
        f(blocks.views(target.base, order["outputs"])[0])
        wire.send(sock, {"ready": order["n"]})
        _, fds = wire.receive(sock, max_fds=1)
        sock.send(wire.encode({"done": order["n"]}))
        os.close(fds[0])
    _main.call = call
"""

ELEMENTWISE = {
    "task.py": b"""import torch
ENTRY = "f"
def make_inputs(case, generator, device):
    return [torch.randn(1024, 2048, generator=generator, device=device)]
def reference(x):
    return torch.sin(x) + 1
""",
    "kernel.py": b"import torch\ndef f(x):\n    return torch.sin(x).add_(1)\n",
}
STRIPPED_SHIM = """
import sys as _sys
_main = _sys.modules["__main__"]
if hasattr(_main, "wire"):
    import array, blocks, mmap, os, socket, wire
    def call(function, order, slot_fd, sock, device, *_):
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        raw = torch.frombuffer(mmap.mmap(slot_fd, order["out_bytes"], flags, 3), dtype=torch.uint8)
        slot = blocks.views(raw, order["outputs"])[0]
        slot[:] = 0
        done = wire.encode({"done": order["n"]})
        wire.send(sock, {"ready": order["n"]})
        while True:
            try:
                _, rights, _, _ = sock.recvmsg(4096, 64, socket.MSG_DONTWAIT)
                break
            except BlockingIOError:
                pass
        fd = array.array("i", rights[0][2][:4])[0]
        raw = torch.frombuffer(mmap.mmap(fd, order["in_bytes"], flags, 1), dtype=torch.uint8)
        x = blocks.views(raw, order["inputs"])[0]
        torch.sin(x, out=slot)
        slot.add_(1)
        sock.send(done)
        os.close(fd)
        os.close(slot_fd)
    _main.call = call
"""


def bundle_of(files: dict[str, bytes]) -> Bundle:
    cases = json.dumps([{"case_id": "main"}]).encode()
    target = b'{"backend": "cpu", "architecture": "cpu-interpreter"}'
    return bundles.from_files({**files, "cases.json": cases, "target.json": target})


@pytest.fixture(scope="module", params=["docker", "bwrap"])
def lab(request: pytest.FixtureRequest) -> SandboxLab:
    return SandboxLab(find(request.param), host_image(PYTHON), "cpu")


def measured(lab: SandboxLab, bundle: Bundle, unit: str, *arms: Arm, blocks: int = 3, timeout_s: float = 10.0) -> Pair:
    """A pair that came back (no SandboxFault), and that the log can hold."""
    plan = PairPlan(f"{unit}-{lab.sandbox.name}", arms, order_seed=1, blocks=blocks, calls=2, call_timeout_s=timeout_s)
    pair = lab.pair(bundle, plan)
    fact = CandidateMeasured(candidate="c001", index=0, incumbent="baseline", pair=pair)
    assert CandidateMeasured.model_validate_json(fact.model_dump_json()) == fact
    return pair


def against(baseline: Bundle, source: str) -> tuple[Arm, Arm]:
    return Arm("baseline", baseline.kernel), Arm("candidate", source.encode())


def first_reason(pair: Pair, arm: str = "candidate") -> str:
    wrong = [why for series in pair.series if series.arm == arm for why in series.why if why]
    return of_call(wrong[0], pair.outcomes[arm]) if wrong else ""


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_candidate_says_at_load_is_its_own_failure(lab: SandboxLab, name: str) -> None:
    pair = measured(lab, RMSNORM, f"fault-{name}", *against(RMSNORM, SOURCES[name]), blocks=1)
    expected = {"role-by-name": ("",)}.get(name, ("protocol", "crashed"))
    assert first_reason(pair) in expected, pair.claims


@pytest.mark.parametrize(("trick", "reason"), [(HOARD, ""), (STALE_INPUT, "crashed")], ids=["hoard", "stale-input"])
def test_memory_of_earlier_calls_is_no_longer_the_judges_and_tells_nothing(
    lab: SandboxLab, trick: str, reason: str
) -> None:
    pair = measured(lab, RMSNORM, f"memory-{reason or 'kept'}", *against(RMSNORM, cheats.HONEST + trick), blocks=1)
    assert (first_reason(pair, "baseline"), first_reason(pair)) == ("", reason), pair.claims


def test_a_build_that_prints_what_no_log_can_store_is_only_a_claim(lab: SandboxLab) -> None:
    for printed in (b'{"ok":true,"x":1' + b"0" * 30 + b"}", b'{"ok":true,"x":1e999}', b'{"ok":true,"jit":["\\udcff"]}'):
        line = b"\n" + printed + b"\n"
        source = cheats.HONEST + f"\nimport os\nos.write(1, {line!r})\nos._exit(0)\n"
        built = lab.build(RMSNORM, source.encode(), f"fault-build-{lab.sandbox.name}")
        assert (built.ok, built.reason) == (False, "build-error")
        json.dumps(built.claim, allow_nan=False).encode()


def test_an_input_that_is_updated_in_place_is_not_there_before_the_clock_starts(lab: SandboxLab) -> None:
    bundle = bundle_of(MUTATING)
    pair = measured(lab, bundle, "mutates", *against(bundle, MUTATING["kernel.py"].decode() + BEFORE_T0))
    assert first_reason(pair, "baseline") == ""
    assert first_reason(pair) in ("wrong", "unwritten", "early-done")


def test_what_a_stripped_shim_saves_is_taken_off_its_lower_bound(lab: SandboxLab) -> None:
    bundle = bundle_of(ELEMENTWISE)
    source = ELEMENTWISE["kernel.py"].decode() + STRIPPED_SHIM
    seen = []
    for n in range(3):
        pair = measured(lab, bundle, f"stripped-{n}", *against(bundle, source), blocks=6)
        assert first_reason(pair) == ""
        seen.append(observe(pair, ["main"]))
    gain, saved = median(one.base["main"] for one in seen), max(one.saved["main"] for one in seen)
    assert gain - saved < 0.15, (gain, saved)


def test_an_incumbent_that_fails_forfeits_and_the_challenger_is_measured(lab: SandboxLab) -> None:
    wrong = cheats.HONEST + "\n_right = rmsnorm\ndef rmsnorm(x, weight):\n    return _right(x, weight) * 0\n"
    arms = (Arm("baseline", RMSNORM.kernel), Arm("incumbent", wrong.encode()), Arm("candidate", cheats.FASTER.encode()))
    pair = measured(lab, RMSNORM, "forfeit", *arms)
    seen = observe(pair, [case.case_id for case in RMSNORM.cases], incumbent="incumbent")
    assert (seen.problem, seen.wrong) == ("", ())
    assert seen.over == seen.base
    assert seen.base["main"] > 0.4
