"""In the guest environment, without a GPU: call each kernel's wrapper on CPU tensors and compile what it launches, for sm_90.

stdin: [{"task", "source", "case"}]; stdout, one each: {"num_warps", "num_stages", "cubin": sha256} of the launched kernel. The
launch itself is left out; arguments are specialised by the wrapper's real call.
"""

import hashlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


class NoDevice:
    """The little that compiling asks of a driver."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(job, folder, number):
    launched = []
    original = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        launched.append(original(self, *args, grid=grid, warmup=True, **options))

    task = load(Path(job["task"]))
    path = folder / f"kernel_{number}.py"
    path.write_text(job["source"])
    inputs = task.make_inputs(job["case"], torch.Generator(), "cpu")
    JITFunction.run = compile_only
    try:
        getattr(load(path), task.ENTRY)(*inputs)
    finally:
        JITFunction.run = original
    (kernel,) = launched
    cubin = hashlib.sha256(kernel.asm["cubin"]).hexdigest()
    return {"num_warps": kernel.metadata.num_warps, "num_stages": kernel.metadata.num_stages, "cubin": cubin}


if __name__ == "__main__":
    triton.runtime.driver.set_active(NoDevice())
    with tempfile.TemporaryDirectory() as scratch:
        json.dump([run(job, Path(scratch), number) for number, job in enumerate(json.load(sys.stdin))], sys.stdout)
