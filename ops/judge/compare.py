"""Is a snapshot right? Exact shape and dtype are given by the slot; values are held to the error budget, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ops.judge.task import Expected


@dataclass(frozen=True)
class Finding:
    """`why` is "" when right: `nan` (NaN or infinity where the reference has none, or the reverse), `unwritten` (the slot still
    holds its plausible wrong data where it is wrong), `wrong`. `worst` is the largest error over its budget; None if not finite."""

    why: str
    worst: float | None


def compare(snapshots: list[torch.Tensor], expected: Expected, prefill: list[torch.Tensor]) -> Finding:
    """Compare every slot; the first slot that is wrong names the reason."""
    worst = 0.0
    for got, value, budget, before in zip(snapshots, expected.values, expected.budget, prefill, strict=True):
        finding = _exact(got, value) if budget is None else _close(got, value, budget)
        if finding.why:
            stale = _same_bits(got, before)
            return Finding("unwritten", finding.worst) if finding.why == "wrong" and stale else finding
        worst = max(worst, finding.worst or 0.0)
    return Finding("", worst)


def _exact(got: torch.Tensor, value: torch.Tensor) -> Finding:
    return Finding("", 0.0) if torch.equal(got, value.to(got.dtype)) else Finding("wrong", None)


def _close(got: torch.Tensor, value: torch.Tensor, budget: torch.Tensor) -> Finding:
    rounded = value.to(got.dtype)
    finite = torch.isfinite(rounded) & torch.isfinite(value)
    # at the edge of the dtype's range a value may round to infinity either way
    top, slack = torch.finfo(got.dtype).max, 2 * torch.finfo(got.dtype).eps
    edge = (value.abs() > top * (1 - slack)) & (value.abs() < top * (1 + slack))
    same_special = (torch.isnan(got) & torch.isnan(rounded)) | (got == rounded)
    finite_got = torch.isfinite(got)
    parity = torch.where(finite & ~edge, finite_got, same_special | (edge & ~torch.isnan(got)))
    if not bool(parity.all()):
        return Finding("nan", None)
    zero = torch.zeros_like(value)
    error = torch.where(finite & finite_got, (got.double() - value).abs(), zero)
    ratio = torch.where(error > 0, error / budget, zero)
    worst = float(ratio.max()) if ratio.numel() else 0.0
    return Finding("" if worst <= 1.0 else "wrong", worst if worst < 1e300 else None)


def _same_bits(got: torch.Tensor, before: torch.Tensor) -> bool:
    """At least one whole row still holds its prefill, bit for bit (a partly written output is also unwritten)."""
    width = got.shape[-1] if got.dim() else 1
    if got.numel() == 0:
        return False
    same = got.contiguous().view(torch.uint8).reshape(-1, width * got.element_size())
    kept = before.contiguous().view(torch.uint8).reshape(-1, width * got.element_size())
    return bool((same == kept).all(dim=1).any())
