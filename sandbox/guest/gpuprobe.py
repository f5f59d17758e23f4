"""The gate's known kernel: a sum whose answer is known beforehand, on the one GPU of this container. Prints one JSON line.

It runs no candidate. A GPU that hangs keeps it from ending, and the container's wall-clock limit ends it; one that computes wrongly
makes it print the wrong number, which the host compares (the host knows the number too).
"""

from __future__ import annotations

import json
import sys

import torch

COUNT = 1 << 20


def main() -> None:
    device = sys.argv[1]
    numbers = torch.arange(COUNT, dtype=torch.int64, device=device)
    answer = int((numbers + numbers).sum().item())
    sys.stdout.write(json.dumps({"answer": answer}) + "\n")


if __name__ == "__main__":
    main()
