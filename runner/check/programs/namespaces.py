# ruff: noqa: T201
"""Enter or make a namespace, where other rules hold. x86_64 numbers."""

import ctypes
import errno
import json
import os

libc = ctypes.CDLL(None, use_errno=True)
KINDS = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
}
answers: dict[str, str] = {}


def call(name: str, number: int, *arguments: int) -> None:
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(part) for part in arguments))
    if done == 0 and name.startswith("clone"):
        os._exit(0)  # the child of one that worked
    answers[name] = errno.errorcode[ctypes.get_errno()] if done == -1 else "done"


for kind, flag in {**KINDS, "net": 0x40000000, "time": 0x80}.items():
    call(f"unshare {kind}", 272, flag)
    if kind != "time":
        call(f"clone {kind}", 56, flag | 17, 0, 0, 0, 0)
call("clone3 into cgroup", 435, 0, 0)
for kind in ("mnt", "net", "user", "pid", "ipc"):
    try:
        fd = os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)
    except OSError:
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    call(f"setns {kind}", 308, fd, 0)
print(json.dumps(answers))
