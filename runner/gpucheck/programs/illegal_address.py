"""Stores far outside of every allocation; the error comes at the next synchronisation and stays for the process's life."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def wild(base, offset):
    tl.store(base + offset, 1.0)


x = torch.zeros(1024, device="cuda")
torch.cuda.synchronize()
wild[(1,)](x, 1 << 44)
sys.stdout.write("launched\n")
sys.stdout.flush()
torch.cuda.synchronize()
sys.stdout.write("nothing happened\n")
