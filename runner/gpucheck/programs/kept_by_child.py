"""Forks after its context exists: the child holds the driver's descriptors, ignores signals and sleeps; the parent kills itself."""

import os
import signal
import sys
import time

import torch

held = torch.ones(4 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
if os.fork() == 0:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
    os._exit(0)
sys.stdout.write(f"held {held.numel() >> 20} MiB, child forked\n")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
