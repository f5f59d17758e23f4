"""The shim beside a candidate: receive inputs, call the entry, copy the result into the output slot, say "done".

Untrusted by definition: the candidate shares this process and may rewrite all of it. It can only lose by that, because the
judge believes nothing from here but the bytes in the output slot at the time it takes its own copy.

Torch and triton are imported before the candidate, or even the bundle, is known; then it connects and waits for `begin`. The source
is released through the read-only bundle folder when the judge says `load`. One guest serves one candidate once.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import warnings
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import blocks  # type: ignore[import-not-found]
import torch
import triton
import wire  # type: ignore[import-not-found]

LINK = "/link/s"
SOURCE = "/bundle/kernel.py"
DETAIL = 2000
"""Characters of an error's text that are passed on."""


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:DETAIL]


def load(entry: str) -> tuple[object, dict[str, object]]:
    """Execute the candidate's source as a module from its file (Triton reads its functions' source from there)."""
    import importlib.util

    try:
        spec = importlib.util.spec_from_file_location("candidate_kernel", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_kernel"] = module
        spec.loader.exec_module(module)
    except BaseException as error:  # whatever the candidate raises, SystemExit included, is its own failure
        return None, {"error": "import", "detail": describe(error)}
    function = getattr(module, entry, None)
    if not callable(function):
        return None, {"error": "no-entry", "detail": f"no callable {entry!r} at top level"}
    return function, {"ok": True}


def call(function: object, order: dict[str, Any], slot_fd: int, sock: socket.socket, device: str) -> None:
    """One bracket call. The judge's clock starts when it sends the input's fd: what can be done before is done before, and the
    wait for it is a spin (a hostile guest would spin, so every arm does)."""
    n = order["n"]
    target = blocks.adopt(device, slot_fd, order["out_bytes"], writable=True)
    slots = blocks.views(target.base, order["outputs"])
    wanted = slots[: order["returned"]]
    shapes = [(tuple(w.shape), w.dtype) for w in wanted]
    specs = [s for s in order["inputs"] if "offset" in s]
    done = wire.encode({"done": n})
    if device == "cuda":
        rehearse(order["in_bytes"], specs)
    else:
        target.base[
            ::64
        ].sum()  # the slot's lines are in the cache for whoever cares to look at them: so they are for every arm
    wire.send(sock, {"ready": n})
    go, fds = wire.receive(sock, max_fds=1, spin_until=time.monotonic() + 60.0)
    source = blocks.adopt(device, fds[0], order["in_bytes"], writable=False)
    try:
        given = iter(blocks.views(source.base, specs))
        arguments = [
            go["scalars"][s["scalar"]]
            if "scalar" in s
            else slots[s["slot"]].copy_(next(given))
            if "slot" in s
            else next(given)
            for s in order["inputs"]
        ]
        try:
            result = function(*arguments)  # type: ignore[operator]
            returned = () if result is None else tuple(result) if isinstance(result, (tuple, list)) else (result,)
            found = [(tuple(r.shape), r.dtype) for r in returned]
            if found != shapes:
                wire.send(sock, {"error": "shape", "n": n, "detail": f"returned {found}"[:DETAIL]})
                return
            for slot, value in zip(wanted, returned, strict=True):
                slot.copy_(value)
            if device == "cuda":
                torch.cuda.synchronize()
        except BaseException as error:  # see load
            wire.send(sock, {"error": "raised", "n": n, "detail": describe(error)})
            return
        sock.send(done)
        del slots, wanted, given, arguments, result, returned
    finally:
        source.close()
        target.close()


def rehearse(size: int, specs: list[dict[str, Any]]) -> None:
    """Map, view, copy and synchronise on memory of our own: the driver's and the processor's caches are warm at t0, and the GPU
    has switched to this context. It tells nothing of the input, and every arm does it."""
    own = blocks.create("cuda", size)
    again = blocks.adopt("cuda", own.share(writable=True), size, writable=False)
    copies = [torch.empty_like(view).copy_(view) for view in blocks.views(again.base, specs)]
    torch.cuda.synchronize()
    del copies
    again.fd = None  # one descriptor, two owners: the first closes it
    again.close()
    own.close()


def main() -> None:
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    device = sys.argv[1]
    torch.set_num_threads(1)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(LINK)
    wire.receive(sock)  # `begin`: until then a blank, without a context on any GPU
    if device == "cuda":
        torch.zeros(1, device="cuda")
    wire.send(
        sock,
        {
            "hello": 1,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "triton": triton.__version__,
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        },
    )
    function: object = None
    gc.disable()  # a collection inside a timed call would be noise; each arm runs this same shim
    while True:
        order, fds = wire.receive(sock, max_fds=1)
        if order["op"] == "load":
            function, answer = load(order["entry"])
            wire.send(sock, answer)
        elif order["op"] == "ready":
            call(function, order, fds[0], sock, device)
            gc.collect(0)
        else:
            return


if __name__ == "__main__":
    try:
        main()
    except wire.WireClosed:
        os._exit(0)
