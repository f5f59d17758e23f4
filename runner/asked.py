"""What the flags of a command mean: each parsed, checked, and refused in one line that says what there is instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops import registry
from ops.contract import Contract
from runner import settings
from runner.bundle import Bundle, from_files
from runner.exits import UsageError
from runner.machine import Device, Wanted

ENGINES = ("auto", "docker", "bwrap")
IMAGES = ("host", "cpu")
FLAGS = (
    "max_candidates",
    "seed",
    "min_speedup",
    "max_cv",
    "max_pairs",
    "aa_pairs",
    "blocks",
    "calls",
    "max_total_seconds",
)
"""The settings that the commands share, in the order of their parameters."""
JUDGE_BYTES = 8 << 30
"""What the judge has on a CPU: twice `SandboxLab.memory_bytes` (runner/jobs.py)."""


def wanted(device: str, engine: str, image: str, guest_python: Path | None) -> Wanted:
    """The machine that was asked for. Raises UsageError."""
    known: dict[str, Device] = {"cpu": "cpu", "cuda": "cuda"}
    for what, name, names in (
        ("device", device, ("cuda", "cpu")),
        ("engine", engine, ENGINES),
        ("image", image, IMAGES),
    ):
        if name not in names:
            raise UsageError(f"unknown {what} {name!r}; there is {', '.join(names)}")
    return Wanted(known[device], engine, image, guest_python)


def shape(text: str) -> dict[str, int]:
    """`B=8,T=2048` as sizes. Which symbols there are is the contract's to say."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        symbol, equals, size = part.strip().partition("=")
        if not (symbol and equals and size.isascii() and size.isdigit()):
            raise UsageError(f"--shape: {part.strip()!r} is not like B=8")
        if len(size) > 12:
            raise UsageError(f"--shape: {symbol}: larger than any memory")
        if symbol in sizes:
            raise UsageError(f"--shape: {symbol} is given twice")
        sizes[symbol] = int(size)
    return sizes


def fits(contract: Contract, sizes: Mapping[str, int], device: Device) -> None:
    """Refuse a shape that cannot be held on a CPU: the judge has at least all tensors once in float64. UsageError.

    Only what is certain is refused here; a shape that passes may still be too large for the reference's own temporaries.
    """
    tensors = (*contract.inputs.values(), *contract.outputs.values())
    needed = 8 * sum(math.prod(sizes[symbol] for symbol in dimensions) for dimensions in tensors)
    if device == "cpu" and needed > JUDGE_BYTES:
        need, has = f"{needed / 2**30:,.0f} GiB", f"{JUDGE_BYTES >> 30} GiB"
        raise UsageError(f"--shape: the reference needs at least {need}, and the judge has {has} on a CPU")


def operator(name: str, sizes: str | None, dtype: str, wish: Wanted) -> tuple[Bundle, dict[str, int], dict[str, Any]]:
    """An operator as a bundle: the files, the checked sizes, and its contract's layer of settings."""
    chosen = registry.get(name)
    checked = chosen.shape(shape(sizes) if sizes is not None else None, wish.device)
    bundle = from_files(chosen.bundle(checked, dtype, wish.device))
    fits(chosen.contract, checked, wish.device)
    limit = chosen.contract.promotion.max_variance
    promotion = {
        "min_speedup": chosen.contract.promotion.min_speedup,
        "max_cv": max(limit, settings.CPU_MAX_CV) if wish.device == "cpu" else limit,
    }
    return bundle, checked, promotion


def on_cpu(wish: Wanted) -> dict[str, Any]:
    """The layer of settings where no GPU is."""
    return {"max_cv": settings.CPU_MAX_CV} if wish.device == "cpu" else {}


def given(*values: Any) -> dict[str, Any]:
    """The shared flags as settings; None where a flag was not given."""
    return dict(zip(FLAGS, values, strict=True))


def belongs(provider: str, **flags: tuple[object, str]) -> None:
    """Refuse a flag that the chosen provider would silently ignore. `flags`: option name -> (value, whose it is)."""
    for name, (value, owner) in flags.items():
        if value is not None and provider != owner:
            raise UsageError(f"--{name.replace('_', '-')} goes with --provider {owner}, not with {provider}")
