"""Leaves a daemon behind (new session, every signal ignored, its parent gone) with memory and an endless kernel on the GPU, and
ends well itself."""

import os
import signal
import sys


def daemon(tell: int) -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    import torch

    held = torch.ones(4 << 30, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 62)
    os.write(tell, f"daemon holds {held.numel() >> 20} MiB".encode())
    torch.cuda.synchronize()


hear, tell = os.pipe()
if os.fork() == 0:
    os.close(hear)
    daemon(tell)
    os._exit(0)
os.close(tell)
sys.stdout.write((os.read(hear, 100).decode() or "the daemon failed") + "\n")
