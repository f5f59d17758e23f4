"""A kernel that waits for a flag which nobody ever sets. Only the end of its process ends it."""

import signal
import sys

import torch
import triton
import triton.language as tl

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)


@triton.jit
def endless(flag):
    seen = tl.atomic_add(flag, 0)
    while seen == 0:
        seen = tl.atomic_add(flag, 0)


flag = torch.zeros(1, dtype=torch.int32, device="cuda")
torch.cuda.synchronize()
endless[(1,)](flag)
sys.stdout.write("launched\n")
sys.stdout.flush()
torch.cuda.synchronize()
sys.stdout.write("the kernel ended\n")
