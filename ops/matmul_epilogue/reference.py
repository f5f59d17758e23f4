"""Matrix product with bias and tanh GELU, as a task: c = gelu(a @ b + bias). Runs in the judge only.

`reference` follows its inputs' precision: the judge calls it in float64 and float32 and derives the tolerance from the two.
"""

import math

import torch

ENTRY = "matmul_epilogue"
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def make_inputs(case, generator, device):
    """a[B, M, K], b[K, N], bias[N], normal. b is scaled by 1/sqrt(K): products of order one are where GELU bends."""
    return _inputs(case, generator, device, lambda a, b: (a, b))


def reference(a, b, bias):
    """0.5 u (1 + tanh z) with u = a @ b + bias, written as u sigmoid(2z): the sum cancels for large negative u."""
    u = a @ b + bias
    return u * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))


def distributions(case):
    """Hidden families: each is a way of being wrong that standard normal inputs do not show."""

    def family(change):
        return lambda case, generator, device: _inputs(case, generator, device, change)

    return {
        "heavy-tail": family(lambda a, b: (a**3, b)),
        "large": family(lambda a, b: (100.0 * a, b)),
        "near-zero": family(lambda a, b: (1e-3 * a, b)),
        "positive": family(lambda a, b: (a.abs(), b.abs())),  # sums grow with K: shows half-precision accumulation
        "outlier-at-end": family(_outlier_at_end),
    }


def minimum_work(case):
    """Two operations per product; a, b and c move once. The epilogue is small beside it."""
    rows, N, K = case["B"] * case["M"], case["N"], case["K"]
    size = DTYPES[case["dtype"]].itemsize
    return {"flops": 2 * rows * N * K, "bytes": size * (rows * K + K * N + N + rows * N)}


def _inputs(case, generator, device, change):
    """`change` acts in float32, before the cast to the case's dtype."""
    a = torch.randn(case["B"], case["M"], case["K"], generator=generator, device=device)
    b = torch.randn(case["K"], case["N"], generator=generator, device=device) * case["K"] ** -0.5
    bias = torch.randn(case["N"], generator=generator, device=device)
    dtype = DTYPES[case["dtype"]]
    a, b = change(a, b)
    return a.to(dtype), b.to(dtype), bias.to(dtype)


def _outlier_at_end(a, b):
    """The last step of K outweighs the rest: shows a tail of K that was left out."""
    a = a.clone()
    a[..., -1] = 100.0
    return a, b
