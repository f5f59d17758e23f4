"""The entry called once per case on CPU tensors, in a child process with a deadline.

Whatever happens in it is no verdict by itself.

A wrapper written for a GPU may do anything on CPU tensors: refuse them, compute for minutes, want more memory than there is, crash.
So the process that answers for the import lives on beside it. Four states:

    compiled   the call returned; what it launched is in the list of kernels
    failed     a kernel does not compile, or wants more of the target than it has: it would not run on the GPU either
    refused    the wrapper raised something else, or its process died; on a GPU it may well run, and is compiled there
    not-tried  the stub, the time or the memory was at its end, or what failed may depend on values that only real inputs have
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from stub import Driver, StubCannot, plain  # type: ignore[import-not-found]
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

MAX_KERNELS = 64
DETAIL, SHORT = 2000, 300
"""Characters that are kept of the first failure, and of every other word."""
LOOKS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim", "bincount")
"""Operators by which a wrapper's course can depend on the values of its inputs."""
METHODS = ("tolist", "numpy", "cpu", "__array__")
"""And methods that reach values past torch's dispatcher."""


def attempt(driver: Driver, entry: Callable[..., object], plan: dict[str, Any], until: float) -> dict[str, Any]:
    """{"cases": [{"state", "why"}], "kernels", "more_kernels"} for `plan` (see build.py); ends by `until` (monotonic)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _live(driver, entry, plan, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    kernels: list[dict[str, Any]] = []
    cases: list[dict[str, str]] = []
    for line in _lines(ours, until):
        message = json.loads(line)
        if "kernel" in message:
            kernels.append(message["kernel"])
        else:
            cases.append(message["case"])
        if len(cases) == len(plan["cases"]):
            break
    rest = {"state": "not-tried", "why": "the calls on CPU tensors did not end in time"}
    silent = len(cases) < len(plan["cases"]) and time.monotonic() < until
    ended = _ended(child, 1.0 if silent else 0.0)
    if silent and ended is not None:
        rest = {"state": "refused", "why": f"the process that called it ended ({ended})"}
    cases += [rest] * (len(plan["cases"]) - len(cases))
    return {
        "cases": _shortened(cases),
        "kernels": kernels[:MAX_KERNELS],
        "more_kernels": max(0, len(kernels) - MAX_KERNELS),
    }


def _live(driver: Driver, entry: Callable[..., object], plan: dict[str, Any], pipe: int) -> None:
    """In the child. What is printed here is nobody's log: Triton prints the whole assembly of what does not compile."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (plan["memory_bytes"] // 2,) * 2)

    def say(message: dict[str, Any]) -> None:
        raw = json.dumps(message).encode() + b"\n"
        while raw:
            raw = raw[os.write(pipe, raw) :]

    driver.record = lambda kernel: say({"kernel": kernel})
    for inputs in plan["cases"]:
        say({"case": one(entry, inputs)})


def one(entry: Callable[..., object], inputs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Call with zeros in place of tensors and the judge's own scalars: {"shape", "dtype"} or {"value"} each."""
    look = _Look()
    try:
        arguments = [
            torch.zeros(each["shape"], dtype=getattr(torch, each["dtype"])) if "shape" in each else each["value"]
            for each in inputs
        ]
        with look:
            entry(*arguments)
    except BaseException as error:  # SystemExit included
        state, why = judged(error, look.looked)
        return {"state": state, "why": _cut(why)}
    return {"state": "compiled", "why": ""}


def judged(error: BaseException, looked: bool) -> tuple[str, str]:
    """(state, why) of what a call raised; `looked`: the wrapper saw values, and these were zeros."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    causes = [each for each in chain if isinstance(each, CompilationError)] or [error]
    why = "; ".join(dict.fromkeys(f"{type(each).__name__}: {each}" for each in causes))
    if not isinstance(error, (CompilationError, OutOfResources, PTXASError)):
        own = any(isinstance(each, (StubCannot, MemoryError)) for each in chain) or "DefaultCPUAllocator" in why
        return ("not-tried" if own else "refused"), why
    killed = any(isinstance(each, subprocess.CalledProcessError) and each.returncode < 0 for each in chain)
    starved = any(isinstance(each, (StubCannot, MemoryError, OSError)) for each in chain)
    starved = starved or (
        isinstance(error, PTXASError) and any(word in why for word in ("emory alloc", "No space left"))
    )
    if killed or starved:
        return "not-tried", why
    if looked:
        return "not-tried", f"the wrapper looked at values, which are zero here; then {why}"
    return "failed", why


class _Look(TorchDispatchMode):  # type: ignore[misc]
    """Notices that a wrapper reads values of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = False

    def __enter__(self) -> _Look:
        for name in METHODS:
            setattr(torch.Tensor, name, self._noticed(getattr(torch.Tensor, name)))
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.looked = self.looked or func.overloadpacket.__name__ in LOOKS
        return func(*args, **(kwargs or {}))

    def _noticed(self, method: Any) -> Any:
        def noticed(*args: Any, **kwargs: Any) -> Any:
            self.looked = True
            return method(*args, **kwargs)

        return noticed


def _lines(pipe: int, until: float) -> Iterator[bytes]:
    """Whole lines until the other end closes or the time is over."""
    held = b""
    while (left := until - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        raw = os.read(pipe, 1 << 16)
        if not raw:
            return
        *whole, held = (held + raw).split(b"\n")
        yield from whole


def _ended(child: int, patience_s: float) -> int | None:
    """How it ended by itself (exit code, or minus the signal); None where it had to be killed."""
    give_up = time.monotonic() + patience_s
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > give_up:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.01)


def _shortened(cases: list[dict[str, str]]) -> list[dict[str, str]]:
    first = next((n for n, case in enumerate(cases) if case["state"] == "failed"), -1)
    return [case if n == first else {**case, "why": case["why"][:SHORT]} for n, case in enumerate(cases)]


def _cut(text: str) -> str:
    """On one line; head and tail: Triton tells the place first, the source between, and the reason last."""
    text = " ".join(plain(text).split())
    return text if len(text) <= DETAIL else f"{text[: DETAIL // 3]} [...] {text[-DETAIL // 2 :]}"
