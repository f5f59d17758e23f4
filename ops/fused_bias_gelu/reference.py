"""GELU with the tanh approximation over x + bias, as a task. Runs in the judge only.

`reference` follows its inputs' precision: the judge calls it in float64 and float32 and derives the tolerance from the two.
"""

import math

import torch

ENTRY = "fused_bias_gelu"
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def make_inputs(case, generator, device):
    """x[B, T, D] and bias[D], standard normal."""
    return _inputs(case, generator, device, lambda x: x)


def reference(x, bias):
    """0.5 u (1 + tanh z) with u = x + bias, written as u sigmoid(2z): the sum cancels for large negative u."""
    u = x + bias
    return u * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))


def distributions(case):
    """Hidden families: each is a way of being wrong that standard normal inputs do not show."""

    def family(change):
        return lambda case, generator, device: _inputs(case, generator, device, change)

    return {
        "heavy-tail": family(lambda x: x**3),
        "large": family(lambda x: 300.0 * x.sign()),  # 300^3 is beyond float16, and exp(300) beyond float32
        "near-zero": family(lambda x: 1e-3 * x),
        "ramp": family(_ramp),
        "outlier-at-end": family(_outlier_at_end),
    }


def minimum_work(case):
    """x is read and y written once; about ten operations per element, the exponential counted as one."""
    elements = case["B"] * case["T"] * case["D"]
    size = DTYPES[case["dtype"]].itemsize
    return {"flops": 10 * elements, "bytes": size * (2 * elements + case["D"])}


def _inputs(case, generator, device, change):
    """`change` acts in float32, before the cast to the case's dtype."""
    x = torch.randn(case["B"], case["T"], case["D"], generator=generator, device=device)
    bias = torch.randn(case["D"], generator=generator, device=device)
    dtype = DTYPES[case["dtype"]]
    return change(x).to(dtype), bias.to(dtype)


def _ramp(x):
    """From -8 to 8 along each row, jittered: covers the whole bend of the curve, and shows exchanged columns."""
    return torch.linspace(-8.0, 8.0, x.shape[-1], device=x.device) + 0.1 * x


def _outlier_at_end(x):
    """One large element in the last column: shows a tail that was not computed."""
    x = x.clone()
    x[..., -1] = 1000.0
    return x
