# ruff: noqa: T201, SIM115
"""Change the bundle, by every call that changes a file."""

import errno
import json
import mmap
import os
from collections.abc import Callable

FILE = "/bundle/kernel.py"


def map_shared() -> None:
    with open(FILE, "r+b") as file:
        mmap.mmap(file.fileno(), 0)[0] = 0


actions: dict[str, Callable[[], object]] = {
    "open": lambda: open(FILE, "w"),
    "append": lambda: open(FILE, "a"),
    "create": lambda: open("/bundle/new.py", "x"),
    "unlink": lambda: os.unlink(FILE),
    "rename": lambda: os.rename(FILE, "/bundle/old.py"),
    "chmod": lambda: os.chmod(FILE, 0o777),
    "chown": lambda: os.chown(FILE, os.getuid(), -1),
    "truncate": lambda: os.truncate(FILE, 0),
    "utime": lambda: os.utime(FILE, (0, 0)),
    "link": lambda: os.link(FILE, "/bundle/also.py"),
    "symlink": lambda: os.symlink("/etc/passwd", "/bundle/l"),
    "mkdir": lambda: os.mkdir("/bundle/d"),
    "tmpfile": lambda: os.open("/bundle", os.O_TMPFILE | os.O_RDWR),
    "mmap": map_shared,
    "xattr": lambda: os.setxattr(FILE, "user.x", b"1"),
    "through proc": lambda: open(f"/proc/self/fd/{os.open(FILE, os.O_RDONLY)}", "w"),
    "through root": lambda: open(f"/proc/1/root{FILE}", "w"),
}
answers = {}
for name, action in actions.items():
    try:
        action()
        answers[name] = "done"
    except OSError as error:
        answers[name] = errno.errorcode[error.errno or 0]
print(json.dumps(answers))
