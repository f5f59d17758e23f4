"""No wait without a limit in what is shipped: a call that can block says for how long, or is listed here with the reason.

It reads the source, so it knows names, not types: a call is a wait by what it is called. Each exception is one function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("runner", "sandbox", "images", "eventstore", "ops", "replay")

UNARGUED = frozenset(
    ("wait", "join", "get", "acquire", "communicate", "result", "select", "pause", "readline", "input")
)
"""Waits for ever when called with nothing; `str.join(x)`, `dict.get(x)`, `event.wait(seconds)` have an argument."""
SOCKETS = frozenset(
    ("accept", "recv", "recv_into", "recvfrom", "recvmsg", "recv_fds", "send_fds", "sendall", "sendmsg")
)
"""The limit of a socket is set on it: in the same file, or it is listed here where."""
PROCESSES = frozenset(("run", "call", "check_call", "check_output"))
REAPERS = frozenset(("wait", "waitpid", "waitid", "wait3", "wait4"))
LOCKS = frozenset(("flock", "lockf"))

INSIDE = ("sandbox/guest/", "runner/check/programs/", "ops/judge/", "ops/wire.py")
"""Runs in a container, which ends at its wall-clock limit whatever it waits for; the host's own ends of the same sockets
are given their limits by whoever opens them (`runner.unit`)."""
ALLOWED = {
    "eventstore/verify.py:verify:run": "reads the user's whole log, however long that is; the user can interrupt it",
}
"""File, function and call, and why it may wait as long as it likes."""


def waits(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Enclosing function, line, and name of each call that may block without a limit."""
    limited = any(name in ("settimeout", "create_connection") for _, _, name in named(tree))
    for owner, call, name in named(tree):
        if unlimited(call, name) or (name in SOCKETS and not limited):
            yield owner, call.lineno, name


def named(tree: ast.Module) -> Iterator[tuple[str, ast.Call, str]]:
    for owner, call in calls(tree, ""):
        yield owner, call, call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def calls(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inside = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{owner}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call):
            yield owner, child
        yield from calls(child, inside)


def unlimited(call: ast.Call, name: str) -> bool:
    text, base = ast.unparse(call), ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    nothing = not call.args and not any(k.arg in ("timeout", "block", "blocking") for k in call.keywords)
    if base == "subprocess":
        return name in PROCESSES and "timeout=" not in text
    if base == "os":
        return name in REAPERS and "WNOHANG" not in text
    if base == "select":
        return name == "select" and len(call.args) < 4
    if name in LOCKS:
        return "LOCK_NB" not in text and "LOCK_UN" not in text
    if name == "poll":  # of a process it looks, of a poll object it waits
        return nothing and base.endswith("poll")
    return name in UNARGUED and nothing


def found() -> dict[str, list[int]]:
    """`file:function:call` -> lines, over all that is shipped."""
    places: dict[str, list[int]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for owner, line, call in waits(ast.parse(path.read_text())):
                if not name.startswith(INSIDE):
                    places.setdefault(f"{name}:{owner}:{call}", []).append(line)
    return places


def test_no_shipped_call_waits_without_a_limit_or_a_reason():
    assert {place: lines for place, lines in found().items() if place not in ALLOWED} == {}


def test_every_exception_is_still_there():
    assert set(ALLOWED) <= set(found())


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("event.wait()", True),
        ("event.wait(3)", False),
        ("process.wait(timeout=3)", False),
        ("thread.join()", True),
        ("', '.join(words)", False),
        ("queue.get()", True),
        ("queue.get(timeout=1)", False),
        ("table.get(key)", False),
        ("lock.acquire()", True),
        ("lock.acquire(blocking=False)", False),
        ("process.communicate()", True),
        ("process.communicate(timeout=1)", False),
        ("future.result()", True),
        ("self._poll.poll()", True),
        ("poll.poll(100)", False),
        ("process.poll()", False),
        ("subprocess.run(['ls'])", True),
        ("subprocess.run(['ls'], timeout=5)", False),
        ("os.waitpid(pid, 0)", True),
        ("os.waitpid(pid, os.WNOHANG)", False),
        ("select.select([a], [], [])", True),
        ("select.select([a], [], [], 0)", False),
        ("fcntl.flock(f, fcntl.LOCK_EX)", True),
        ("fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)", False),
        ("sock.recv(10)", True),
        ("sock.settimeout(1); sock.recv(10)", False),
        ("door.accept()", True),
    ],
)
def test_the_lint_knows_a_wait_from_a_look(source, blocks):
    assert [name for _, _, name in waits(ast.parse(source))] != [] if blocks else list(waits(ast.parse(source))) == []
