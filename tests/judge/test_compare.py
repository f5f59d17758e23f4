"""The comparator and the error budget: a correctly rounded output passes, each way of being wrong has its own name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import guestenv

pytestmark = pytest.mark.guest

SETUP = """
import math, os, tempfile, torch
from ops.judge.compare import compare
from ops.judge.task import Task
folder = tempfile.mkdtemp()
open(os.path.join(folder, "task.py"), "w").write('''
import torch
ENTRY = "rmsnorm"
def make_inputs(case, generator, device):
    dtype = getattr(torch, case["dtype"])
    draw = lambda *shape: torch.randn(*shape, generator=generator, device=device).to(dtype)
    return draw(case["B"], case["D"]), draw(case["D"])
def reference(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
''')
task = Task(os.path.join(folder, "task.py"), "cpu")
def setup(dtype, B=32, D=512):
    case = {"B": B, "D": D, "dtype": dtype, "case_id": "main"}
    x, w = task.inputs(case, torch.Generator().manual_seed(1))
    u, v = task.inputs(case, torch.Generator().manual_seed(2))
    decoy = task.expected(case, [u, v]).values[0].to(x.dtype)
    return x, w, task.expected(case, [x, w]), decoy
out = {}
"""


def test_a_correctly_rounded_output_passes_in_every_dtype() -> None:
    found = guestenv.run(
        SETUP
        + """
for dtype in ("float32", "float16", "bfloat16"):
    x, w, expected, decoy = setup(dtype)
    got = compare([expected.values[0].to(x.dtype)], expected, [decoy])
    out[dtype] = [got.why, got.worst < 0.6]
print(json.dumps(out))
"""
    )
    assert found == {dtype: ["", True] for dtype in ("float32", "float16", "bfloat16")}


def test_another_order_of_summation_in_float32_passes_and_half_precision_arithmetic_does_not() -> None:
    found = guestenv.run(
        SETUP
        + """
x, w, expected, decoy = setup("float32")
def norm(x, w, chunk):
    total = sum((part * part).sum(-1, keepdim=True) for part in x.split(chunk, dim=-1))
    return x * (1 / torch.sqrt(total / x.shape[-1] + 1e-6)) * w
out["reordered"] = compare([norm(x, w, 7)], expected, [decoy]).why
out["half"] = compare([norm(x.half(), w.half(), 512).float()], expected, [decoy]).why
out["tf32-like"] = compare([norm(x.bfloat16().float(), w, 512)], expected, [decoy]).why
print(json.dumps(out))
"""
    )
    assert found == {"reordered": "", "half": "wrong", "tf32-like": "wrong"}


def test_each_way_of_being_wrong_has_its_name() -> None:
    found = guestenv.run(
        SETUP
        + """
x, w, expected, decoy = setup("float16")
right = expected.values[0].half()
def judge(change):
    got = right.clone()
    change(got)
    return compare([got], expected, [decoy]).why
out["right"] = judge(lambda t: None)
out["zeros"] = judge(lambda t: t.zero_())
out["one element off"] = judge(lambda t: t[3, 5].add_(1.0))
out["off by a percent"] = judge(lambda t: t.mul_(1.01))
out["one NaN"] = judge(lambda t: t[0, 0].fill_(math.nan))
out["all NaN"] = judge(lambda t: t.fill_(math.nan))
out["one infinity"] = judge(lambda t: t[0, 0].fill_(math.inf))
out["never written"] = judge(lambda t: t.copy_(decoy))
out["last row never written"] = judge(lambda t: t[-1].copy_(decoy[-1]))
out["rows swapped"] = judge(lambda t: t.copy_(t.flip(0)))
print(json.dumps(out))
"""
    )
    assert found == {
        "right": "",
        "zeros": "wrong",
        "one element off": "wrong",
        "off by a percent": "wrong",
        "one NaN": "nan",
        "all NaN": "nan",
        "one infinity": "nan",
        "never written": "unwritten",
        "last row never written": "unwritten",
        "rows swapped": "wrong",
    }


def test_a_reference_that_is_itself_infinite_wants_the_same_infinity() -> None:
    found = guestenv.run(
        SETUP
        + """
x, w, expected, decoy = setup("float16", B=1, D=4)
expected.values[0][0, 1] = 1e9
right = expected.values[0].half()
out["same"] = compare([right], expected, [decoy]).why
finite = right.clone(); finite[0, 1] = 60000.0
out["finite instead"] = compare([finite], expected, [decoy]).why
print(json.dumps(out))
"""
    )
    assert found == {"same": "", "finite instead": "nan"}


def test_integers_are_held_to_equality() -> None:
    found = guestenv.run(
        SETUP
        + """
from ops.judge.task import Expected
value = torch.arange(8)
expected = Expected([value], [None], [{"shape": [8], "dtype": "int64"}])
out["same"] = compare([value.clone()], expected, [torch.zeros(8, dtype=torch.int64)]).why
out["one off"] = compare([value + 1], expected, [torch.zeros(8, dtype=torch.int64)]).why
print(json.dumps(out))
"""
    )
    assert found == {"same": "", "one off": "wrong"}


def test_the_seed_of_a_call_can_be_derived_from_the_revealed_secret_and_from_nothing_else() -> None:
    found = guestenv.run(
        """
import torch
from ops.judge.seeds import Seeds, seed
one, two = Seeds(), Seeds()
draw = lambda g: torch.randn(4, generator=g).tolist()
out = {
    "same": draw(one.generator("7", "cpu")) == draw(torch.Generator().manual_seed(seed(bytes.fromhex(one.reveal()), "7"))),
    "next": draw(one.generator("7", "cpu")) == draw(one.generator("8", "cpu")),
    "other": draw(one.generator("7", "cpu")) == draw(two.generator("7", "cpu")),
}
print(json.dumps(out))
"""
    )
    assert found == {"same": True, "next": False, "other": False}
