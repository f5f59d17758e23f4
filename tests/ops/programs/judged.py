"""In the guest environment, in Triton's interpreter: run kernels on a task's inputs and hold them to the judge's own budget.

stdin: [{"task", "source", "case", "family", "bound": {"rtol", "atol"} | null, "strided": bool}]; stdout: one finding each,
{"why", "worst", "over_bound"}. Memory from torch.empty holds NaN, so that an unwritten element cannot pass by luck.
"""

import importlib.util
import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from ops.judge.compare import compare
from ops.judge.task import Task

warnings.filterwarnings(
    "ignore", "overflow encountered in exp"
)  # numpy under the interpreter; the limit is the right one


def strided(value):
    """The same values, every second element of a tensor twice as wide."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.stack([value, torch.full_like(value, 7.0)], dim=-1)[..., 0]


def run(job, folder, number):
    """One job's finding."""
    task = Task(job["task"], "cpu")
    path = folder / f"kernel_{number}.py"
    path.write_text(job["source"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case = {"case_id": "main", **job["case"]}
    inputs = task.inputs(case, torch.Generator().manual_seed(number), job.get("family", ""))
    expected = task.expected(case, inputs)
    given = [strided(value) for value in inputs] if job.get("strided") else inputs
    got = getattr(module, task.module.ENTRY)(*given)
    assert [list(got.shape), str(got.dtype)] == [expected.specs[0]["shape"], f"torch.{expected.specs[0]['dtype']}"]
    finding = compare([got], expected, [torch.zeros_like(got)])
    out = {"why": finding.why, "worst": finding.worst}
    if bound := job.get("bound"):
        exact = expected.values[0]
        ratio = (got.double() - exact).abs() / (bound["atol"] + bound["rtol"] * exact.abs())
        out["over_bound"] = ratio.max().item()
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    with tempfile.TemporaryDirectory() as scratch:
        findings = [run(job, Path(scratch), number) for number, job in enumerate(json.load(sys.stdin))]
    json.dump(findings, sys.stdout)
