"""The bundle's task, loaded in the judge only: inputs, reference and tolerance. Its author is trusted by the user."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ops.blocks import DTYPES

NAMES = {dtype: name for name, dtype in DTYPES.items()}
WIDE = 16
"""The rounding error of the reference in float32, measured against float64, is allowed this many times over: a kernel may sum
in another order than torch does. A kernel that computes in half precision exceeds it by orders of magnitude."""


class TaskError(Exception):
    """The task itself is wrong (a bundle fault, told to the user in one line)."""


@dataclass(frozen=True)
class Expected:
    """What is right for one input."""

    values: list[torch.Tensor]
    """One per output slot, float64 (or exact integers), shape of the output."""
    budget: list[torch.Tensor | None]
    """Allowed absolute error per element (broadcastable), float64; None means exact."""
    specs: list[dict[str, Any]]
    """{"shape", "dtype"} of each slot as the candidate must write it."""


@contextmanager
def _theirs(what: str) -> Iterator[None]:
    """The bundle's code runs here: what it raises is the bundle's. But for want of memory and errors of the device, which somebody
    else may have caused: they pass, and the host tells whose they are."""
    try:
        yield
    except (TaskError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and any(word in str(error) for word in ("memory", "CUDA")):
            raise
        raise TaskError(f"task.py: {what}: {type(error).__name__}: {error}") from error


class Task:
    """`task.py` behind a narrow interface; every tensor it makes stays in this process."""

    def __init__(self, path: str, device: str) -> None:
        spec = importlib.util.spec_from_file_location("assay_task", path)
        if spec is None or spec.loader is None:
            raise TaskError("task.py cannot be loaded")
        self.module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(self.module)
        except Exception as error:
            raise TaskError(f"task.py: {type(error).__name__}: {error}") from error
        self.device = device
        self.mutates: tuple[int, ...] = tuple(getattr(self.module, "MUTATES", ()))

    def families(self, case: dict[str, Any]) -> dict[str, Callable[..., Any]]:
        """Hidden input families of a case, by name."""
        distributions = getattr(self.module, "distributions", None)
        return dict(distributions(case)) if distributions else {}

    def inputs(self, case: dict[str, Any], generator: torch.Generator, family: str = "") -> list[Any]:
        """Tensors (contiguous, on the device) and JSON scalars, in the order of the entry's arguments."""
        with _theirs("make_inputs" if not family else f"family {family!r}"):
            make = self.families(case)[family] if family else self.module.make_inputs
            made = list(make(case, generator, self.device))
        for index, value in enumerate(made):
            if isinstance(value, torch.Tensor):
                if value.dtype not in NAMES:
                    raise TaskError(f"input {index} has unsupported dtype {value.dtype}")
                made[index] = value.contiguous()
            elif not isinstance(value, (int, float, bool, str)) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise TaskError(f"input {index} is neither a tensor nor a finite scalar: {type(value).__name__}")
        return made

    def expected(self, case: dict[str, Any], inputs: list[Any]) -> Expected:
        """Reference in float64; budget from float64 against float32, unless the task sets its own tolerance."""
        with _theirs("reference"):
            return self._expected(case, inputs)

    def _expected(self, case: dict[str, Any], inputs: list[Any]) -> Expected:
        exact = self._reference(inputs, torch.float64)
        dtypes = self._output_dtypes(case, inputs, exact)
        own = getattr(self.module, "tolerance", None)
        single = None if own else self._reference(inputs, torch.float32)
        budget: list[torch.Tensor | None] = []
        for index, (value, dtype) in enumerate(zip(exact, dtypes, strict=True)):
            if not dtype.is_floating_point:
                budget.append(None)
            elif own:
                limits = own(case, NAMES[dtype])
                budget.append(float(limits["atol"]) + float(limits["rtol"]) * value.abs())
            else:
                assert single is not None
                budget.append(_budget(value, single[index], dtype))
        specs = [{"shape": list(v.shape), "dtype": NAMES[d]} for v, d in zip(exact, dtypes, strict=True)]
        return Expected(exact, budget, specs)

    def _reference(self, inputs: list[Any], dtype: torch.dtype) -> list[torch.Tensor]:
        """Outputs (then the final contents of each mutated input) with floating inputs upcast to `dtype`."""
        upcast = [v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
        upcast = [v.clone() if i in self.mutates else v for i, v in enumerate(upcast)]
        result = self.module.reference(*upcast)
        values = list(result) if isinstance(result, (tuple, list)) else [result]
        return [v.double() if v.is_floating_point() else v for v in values]

    def _output_dtypes(self, case: dict[str, Any], inputs: list[Any], exact: list[torch.Tensor]) -> list[torch.dtype]:
        own = getattr(self.module, "output_dtypes", None)
        if own:
            return [DTYPES[name] for name in own(case)]
        floating = [v.dtype for v in inputs if isinstance(v, torch.Tensor) and v.is_floating_point()]
        plain = [floating[0] if v.is_floating_point() and floating else v.dtype for v in exact]
        if self.mutates:
            for slot, index in enumerate(self.mutates, len(plain) - len(self.mutates)):
                plain[slot] = inputs[index].dtype
        return plain


def _budget(exact: torch.Tensor, single: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Two units in the last place of the output dtype, plus WIDE times the row's worst float32 error, plus a floor.

    The row is the last dimension: one large row cannot loosen another. The floor is WIDE float32 roundings of the row's own
    magnitude over sqrt(row) (a row whose float32 reference happens to be exact is not a promise that any other order is).
    """
    info = torch.finfo(dtype)
    clean = torch.where(torch.isfinite(exact), exact, torch.zeros_like(exact))
    error = torch.where(torch.isfinite(exact), (single - exact).abs(), torch.zeros_like(exact))
    error = torch.where(torch.isfinite(error), error, torch.zeros_like(error))
    if exact.dim() == 0:
        worst, size = error, clean.abs()
    else:
        worst = error.amax(dim=-1, keepdim=True)
        size = clean.abs().square().mean(dim=-1, keepdim=True).sqrt()
    single_eps = torch.finfo(torch.float32).eps
    return 2 * info.eps * clean.abs() + WIDE * worst + 0.5 * single_eps * size + float(info.smallest_normal) * info.eps
