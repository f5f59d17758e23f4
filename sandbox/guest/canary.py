"""First program of every container: it says what limits it really has, stops, and becomes the job.

An argument list proves nothing about what the kernel applied. This process has the job's own identity, limits and
mounts, because it is the same process: the host reads its one line of JSON, compares (`sandbox.canary`), and only then
lets it run on. It decides nothing itself, and leaves nothing behind: no open file, no changed signal, the same environment.

Every job pays for it, so it imports what the interpreter has built in: `os`, `signal` and `json` would double its cost.
"""

import _signal  # type: ignore[import-not-found]  # built in, and no stub says so
import sys
from _json import encode_basestring_ascii
from posix import execve, fstat, getpid, kill, listdir, readlink, uname, write


def read(path: str) -> str:
    with open(path, errors="backslashreplace") as file:
        return file.read()


def open_files() -> list[int]:
    """What is open beside the listing itself."""
    found = []
    for name in listdir("/proc/self/fd"):
        try:
            fstat(int(name))
        except OSError:
            continue
        found.append(int(name))
    return sorted(found)


def environment() -> dict[bytes, bytes]:
    """As it was given: Python itself may have added a locale."""
    with open("/proc/self/environ", "rb") as file:
        return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)


def report() -> dict[str, object]:
    return {
        "status": read("/proc/self/status"),
        "limits": read("/proc/self/limits"),
        "mounts": read("/proc/self/mountinfo"),
        "network": read("/proc/net/dev"),
        "namespaces": {name: readlink(f"/proc/self/ns/{name}") for name in sorted(listdir("/proc/self/ns"))},
        "devices": sorted(listdir("/dev")),
        "environment": sorted(name.decode(errors="backslashreplace") for name in environment()),
        "hostname": uname().nodename,
        "files": open_files(),
    }


def said(value: object) -> str:
    """As JSON: texts, numbers, lists and dictionaries of texts."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{said(name)}:{said(one)}" for name, one in value.items()) + "}"
    return "[" + ",".join(map(said, value)) + "]" if isinstance(value, list) else str(value)


if __name__ == "__main__":
    line = said(report()).encode() + b"\n"
    while line:
        line = line[write(1, line) :]
    kill(getpid(), _signal.SIGSTOP)
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
        _signal.signal(ignored, _signal.SIG_DFL)
    execve(sys.argv[1], sys.argv[1:], environment())
