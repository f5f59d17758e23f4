"""A driver without a GPU: a wrapper that is called on CPU tensors compiles each kernel that it launches, and launches none.

Triton compiles at the first launch, for the target and with the argument types that this driver and the call give it, and then asks
the driver to load what it made. Here that is where the cubin is written down. Works with Triton 3.6 and 3.7, whose launchers
differ: nothing is asked of a launcher but to be called. All of this is a claim: the candidate shares the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cubin import CubinError, resources  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget

SHARED = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}
"""Largest dynamic shared memory of one program, bytes, by compute capability (CUDA programming guide, opt-in per block)."""
MULTIPROCESSORS = 132
"""Told to wrappers that size a grid by it: an H200's."""
THREADS = 1024
"""Of one program, on every architecture above."""
NAME, SIGNATURE = 80, 200
"""Characters that are kept of either."""


class StubCannot(AttributeError):
    """The stub was asked for what only a real driver has: nothing is learnt about the candidate."""


class Driver:
    """What compiling and a wrapper ask of Triton's active driver, as device 0 of compute capability `arch` (90 for sm_90)."""

    def __init__(self, arch: int, record: Callable[[dict[str, Any]], None] = lambda kernel: None) -> None:
        self.arch, self.record = arch, record
        self.utils, self.launcher_cls = self, self._launcher
        self._seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        raise StubCannot(f"the stub driver has no {name!r}")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.arch, 10)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        if self.arch not in SHARED:
            raise StubCannot(f"the limits of sm_{self.arch} are not known here")
        return {
            "max_shared_mem": SHARED[self.arch],
            "max_num_regs": 65536,
            "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": 32,
        }

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing is printed by what is never launched."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Of an autotuned kernel every configuration is compiled; none is the fastest, so the first is taken."""

        def once(call: Callable[[], object], quantiles: Sequence[float] = (), **_: object) -> list[float]:
            call()
            return [1.0] * len(quantiles)

        return once

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        """Triton's words: (module, function, registers, spilled words, most threads)."""
        try:
            registers, local = resources(binary, name)
        except CubinError as error:
            raise StubCannot(str(error)) from None
        src, metadata = self._compiled
        digest = hashlib.sha256(binary).hexdigest()
        if digest not in self._seen:
            self._seen.add(digest)
            self.record(
                {
                    "name": plain(name)[:NAME],
                    "signature": plain(signature(src))[:SIGNATURE],
                    "arch": self.arch,
                    "num_warps": metadata.num_warps,
                    "num_stages": metadata.num_stages,
                    "num_ctas": metadata.num_ctas,
                    "shared_bytes": shared,
                    "registers": registers,
                    "local_bytes": local,
                    "cubin_bytes": len(binary),
                    "cubin_sha256": digest,
                }
            )
        return object(), 1, registers, local // 4, THREADS

    def _launcher(self, src: Any, metadata: Any) -> Callable[..., None]:
        """Triton makes the launcher right before it loads the binary."""
        self._compiled = (src, metadata)
        return lambda *arguments: None


def signature(src: Any) -> str:
    """`x_ptr:*fp16:16, D:i32, BLOCK_SIZE=1024`: types of what is passed (`:16` where Triton relies on multiples of 16), values of
    what is compiled in."""
    fixed = {path[0]: value for path, value in src.constants.items() if len(path) == 1}
    aligned = {
        path[0] for path, facts in src.attrs.items() if ["tt.divisibility", 16] in [list(fact) for fact in facts]
    }
    return ", ".join(
        f"{name}={fixed[index]}" if index in fixed else f"{name}:{kind}" + (":16" if index in aligned else "")
        for index, (name, kind) in enumerate(src.signature.items())
    )


def plain(text: object) -> str:
    """ASCII, so that a bound on characters is one on bytes."""
    return str(text).encode("ascii", "backslashreplace").decode()
