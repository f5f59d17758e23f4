# ruff: noqa: T201
"""Change the machine through /proc and /sys. What is written is what is there, so that nothing changes even if it works."""

import errno
import json

PATHS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/fs/file-max",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
answers: dict[str, str] = {}
for path in PATHS:
    try:
        with open(path, "r+b", buffering=0):
            answers[path] = "done"
    except OSError as error:
        answers[path] = errno.errorcode[error.errno or 0]
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    answers["oom_score_adj -1000"] = "done"
except OSError as error:
    answers["oom_score_adj -1000"] = errno.errorcode[error.errno or 0]
print(json.dumps(answers))
