"""Indexes outside of a tensor on the GPU: torch's kernel traps."""

import sys

import torch

x = torch.zeros(8, device="cuda")
index = torch.full((4,), 1_000_000, device="cuda")
torch.cuda.synchronize()
sys.stdout.write("launched\n")
sys.stdout.flush()
x[index]
torch.cuda.synchronize()
sys.stdout.write("nothing happened\n")
