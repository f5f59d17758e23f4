# ruff: noqa: T201
"""Leave a hundred daemons behind: forked twice, in sessions of their own, deaf to every signal; then exit well."""

import contextlib
import os
import signal
import time


def daemon() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


for _ in range(100):
    child = os.fork()
    if child == 0:
        daemon()
    os.waitpid(child, 0)
print("all well")
