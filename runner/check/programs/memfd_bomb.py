# ruff: noqa: T201
"""Memory that no file name shows: anonymous files, filled one after the other."""

import os

CHUNK = bytes(1 << 20)
for number in range(100):
    fd = os.memfd_create(str(number))
    for _ in range(100):
        os.write(fd, CHUNK)
print("no end")
