# ruff: noqa: T201
"""Plant something where the host may look for results: links, pipes, sockets, a file that is swapped while it is read."""

import errno
import json
import os
import socket
from collections.abc import Callable

answers: dict[str, str] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
        answers[name] = "done"
    except OSError as error:
        answers[name] = errno.errorcode.get(error.errno or 0, str(error))


def bind(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)


for folder in ("/bundle", "/link", "/hostile", "/out"):
    attempt(f"symlink {folder}", lambda f=folder: os.symlink("/etc/shadow", f"{f}/result.json"))  # type: ignore[misc]
    attempt(f"fifo {folder}", lambda f=folder: os.mkfifo(f"{f}/result.json"))  # type: ignore[misc]
    attempt(f"socket {folder}", lambda f=folder: bind(f"{f}/result.json"))  # type: ignore[misc]
    attempt(f"file {folder}", lambda f=folder: os.close(os.open(f"{f}/r", os.O_CREAT | os.O_WRONLY)))  # type: ignore[misc]
attempt("swap", lambda: os.rename("/bundle/kernel.py", "/bundle/result.json"))
print(json.dumps(answers))
