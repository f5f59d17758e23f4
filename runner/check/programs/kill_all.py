# ruff: noqa: T201
"""Kill process 1, then everything that can be reached; who is left says so."""

import contextlib
import os

for pid in (1, -1):
    with contextlib.suppress(OSError):
        os.kill(pid, 9)
print("alive", flush=True)
