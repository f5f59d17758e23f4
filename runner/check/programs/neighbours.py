# ruff: noqa: T201
"""List whom one can see: processes, files of other runs, devices."""

import contextlib
import glob
import json
import os

lines: list[str] = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    with contextlib.suppress(OSError), open(path) as file:
        lines.append(file.read().replace("\0", " "))
files = [
    f"{folder}/{name}"
    for folder in ("/tmp", "/dev/shm", "/run", "/var/tmp")
    if os.path.isdir(folder)
    for name in os.listdir(folder)
]
print(json.dumps({"processes": lines, "files": files, "devices": glob.glob("/dev/nvidia*")}))
