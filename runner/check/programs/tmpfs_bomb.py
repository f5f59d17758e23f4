# ruff: noqa: T201
"""Fill a /tmp that is larger than the memory cap."""

import sys

CHUNK = bytes(1 << 20)
for number in range(100):
    with open(f"/tmp/{sys.argv[1]}-{number}", "wb", buffering=0) as file:
        for _ in range(100):
            file.write(CHUNK)
print("no end")
