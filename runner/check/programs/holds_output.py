# ruff: noqa: T201
"""End at once, while a grandchild in a session of its own keeps the output streams open."""

import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
print("done", flush=True)
