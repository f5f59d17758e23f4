"""The good candidate: a Triton vector addition, compared bit for bit with torch. It runs after each faulty program."""

import sys

import torch
import triton
import triton.language as tl

N = 1 << 20


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


a = torch.arange(N, dtype=torch.float32, device="cuda")
b = torch.flip(a, (0,))
out = torch.empty_like(a)
add[(triton.cdiv(N, 1024),)](a, b, out, N, BLOCK=1024)
right = bool((out == a + b).all().item())
sys.stdout.write("good\n" if right else "wrong\n")
sys.exit(0 if right else 1)
