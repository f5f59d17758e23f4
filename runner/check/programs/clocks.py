# ruff: noqa: T201
"""Set the machine's clock. What is set is the present time: should it work, nobody's clock is spoilt."""

import ctypes
import errno
import json
import time

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> str:
    ctypes.set_errno(0)
    return "done" if getattr(libc, name)(*arguments) != -1 else errno.errorcode[ctypes.get_errno()]


def now() -> object:
    seconds, rest = divmod(time.time_ns(), 10**9)
    return (ctypes.c_long * 2)(seconds, rest // 1000)


def set_realtime() -> str:
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time())
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


answers = {
    "clock_settime": set_realtime(),
    "settimeofday": call("settimeofday", now(), None),
    "adjtimex": call("adjtimex", (ctypes.c_long * 64)()),
}
print(json.dumps(answers))
