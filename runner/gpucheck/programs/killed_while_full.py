"""Takes nearly all of the GPU's memory and sleeps: the sandbox kills it with all of that still held."""

import sys
import time

import torch

free, _ = torch.cuda.mem_get_info()
held = torch.empty(int(free * 0.9), dtype=torch.uint8, device="cuda")
held.fill_(255)
torch.cuda.synchronize()
sys.stdout.write(f"held {held.numel() >> 20} MiB\n")
sys.stdout.flush()
time.sleep(3600)
