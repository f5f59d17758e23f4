# ruff: noqa: T201
"""Change what is mounted where, by every call that does."""

import ctypes
import errno
import json
import os

libc = ctypes.CDLL(None, use_errno=True)
TMPFS, BIND, REMOUNT = b"tmpfs", 0x1000, 0x20 | 0x1000
os.mkdir("/tmp/place")


def call(name: str, *arguments: object) -> str:
    ctypes.set_errno(0)
    done = getattr(libc, name)(*arguments)
    return "done" if done != -1 else errno.errorcode[ctypes.get_errno()]


def number(which: int, *arguments: object) -> str:
    return call("syscall", ctypes.c_long(which), *arguments)


answers = {
    "tmpfs": call("mount", b"none", b"/tmp/place", TMPFS, 0, None),
    "proc": call("mount", b"proc", b"/tmp/place", b"proc", 0, None),
    "bind": call("mount", b"/usr", b"/tmp/place", None, BIND, None),
    "remount": call("mount", b"none", b"/bundle", None, REMOUNT, None),
    "overlay": call("mount", b"o", b"/tmp/place", b"overlay", 0, b"lowerdir=/usr,upperdir=/tmp,workdir=/tmp"),
    "cgroup": call("mount", b"c", b"/tmp/place", b"cgroup2", 0, None),
    "umount": call("umount2", b"/bundle", 2),
    "pivot_root": number(155, b"/tmp", b"/tmp/place"),
    "chroot": call("chroot", b"/tmp"),
    "open_tree": number(428, -100, b"/usr", 1),
    "move_mount": number(429, -100, b"/usr", -100, b"/tmp/place", 0),
    "fsopen": number(430, TMPFS, 0),
    "fsmount": number(432, 0, 0, 0),
    "fspick": number(433, -100, b"/bundle", 0),
    "mount_setattr": number(442, -100, b"/bundle", 0, None, 0),
}
print(json.dumps(answers))
