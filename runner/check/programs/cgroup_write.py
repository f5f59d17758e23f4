# ruff: noqa: T201
"""Loosen one's own limits, or run something on the host, through the cgroup files."""

import errno
import glob
import json
import os

NAMES = (
    "memory.max",
    "memory.limit_in_bytes",
    "pids.max",
    "cgroup.procs",
    "tasks",
    "release_agent",
    "notify_on_release",
)
answers: dict[str, str] = {"none visible": "EACCES"}
for name in (*NAMES, "cgroup.subtree_control", "devices.allow", "cpuset.cpus"):
    for path in glob.glob(f"/sys/fs/cgroup/{name}") + glob.glob(f"/sys/fs/cgroup/*/{name}"):
        try:
            with open(path, "w") as file:
                file.write("1")
            answers[path] = "done"
        except OSError as error:
            answers[path] = errno.errorcode[error.errno or 0]
for folder in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")):
    try:
        os.mkdir(f"{folder}/planted")
        answers[f"mkdir {folder}"] = "done"
    except OSError as error:
        answers[f"mkdir {folder}"] = errno.errorcode[error.errno or 0]
print(json.dumps(answers))
