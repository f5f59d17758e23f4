"""What the arguments of each case look like: shapes, dtypes and scalars of one draw, printed as the last line of stdout.

A job of its own, in the judge's container and without any guest: the build container compiles kernels for arguments of this form,
and the host, which knows no torch, cannot tell it. Made on the CPU, so that no build waits for a GPU. Argument: the folder of the
frozen bundle. No value of a tensor is told.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import torch

from ops import wire
from ops.judge.task import NAMES, Task, TaskError

MAX_CASES = 16
"""Later ones are left out: the host says so."""


def specs(bundle: str) -> list[list[dict[str, Any]]]:
    """For each case the entry's arguments: {"shape", "dtype"} of a tensor, {"value"} of a scalar."""
    task = Task(os.path.join(bundle, "task.py"), "cpu")
    with open(os.path.join(bundle, "cases.json"), encoding="utf-8") as file:
        cases = [{**c.get("parameters", {}), "case_id": c["case_id"]} for c in json.load(file)]
    return [
        [
            {"shape": list(value.shape), "dtype": NAMES[value.dtype]}
            if isinstance(value, torch.Tensor)
            else {"value": value}
            for value in task.inputs(case, torch.Generator("cpu"))
        ]
        for case in cases[:MAX_CASES]
    ]


def main() -> None:
    torch.set_num_threads(1)
    try:
        answer: dict[str, Any] = {"cases": specs(sys.argv[1])}
        wire.encode(answer)
    except (TaskError, RuntimeError, MemoryError, wire.WireError) as error:
        answer = {"why": wire.clean(error, 300)}
    sys.stdout.flush()
    os.write(1, b"\n" + wire.encode(answer) + b"\n")


if __name__ == "__main__":
    main()
