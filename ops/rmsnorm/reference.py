"""RMSNorm as a task: y = x / sqrt(mean over D of x^2 + eps) * weight. Runs in the judge only.

`reference` follows its inputs' precision: the judge calls it in float64 and float32 and derives the tolerance from the two.
"""

import torch

ENTRY = "rmsnorm"
EPS = 1e-6
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def make_inputs(case, generator, device):
    """x[B, T, D] and weight[D], standard normal."""
    return _inputs(case, generator, device, lambda x: x)


def reference(x, weight):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS) * weight


def distributions(case):
    """Hidden families: each is a way of being wrong that standard normal inputs do not show."""

    def family(change):
        return lambda case, generator, device: _inputs(case, generator, device, change)

    return {
        "heavy-tail": family(lambda x: x**3),
        "large": family(lambda x: 300.0 * x.sign()),  # 300^2 is beyond float16: squares must be taken in float32
        "near-zero": family(lambda x: 1e-3 * x),  # mean(x^2) is about eps: eps must be there, inside the root
        "scaled-rows": family(_scaled_rows),
        "outlier-at-end": family(_outlier_at_end),
    }


def minimum_work(case):
    """x is read and y written once; a square, an addition and two products per element."""
    elements = case["B"] * case["T"] * case["D"]
    size = DTYPES[case["dtype"]].itemsize
    return {"flops": 4 * elements, "bytes": size * (2 * elements + case["D"])}


def _inputs(case, generator, device, change):
    """`change` acts in float32, before the cast to the case's dtype."""
    x = torch.randn(case["B"], case["T"], case["D"], generator=generator, device=device)
    weight = torch.randn(case["D"], generator=generator, device=device)
    dtype = DTYPES[case["dtype"]]
    return change(x).to(dtype), weight.to(dtype)


def _scaled_rows(x):
    """Row t times 2^(t mod 13 - 6), and the first row zero: shows rows that use a neighbour's scale."""
    steps = torch.arange(x.shape[1], device=x.device) % 13 - 6
    scaled = x * torch.exp2(steps.to(x.dtype))[None, :, None]
    scaled[:, 0] = 0.0
    return scaled


def _outlier_at_end(x):
    """One huge element in the last column: shows a tail that was left out of the sum."""
    x = x.clone()
    x[..., -1] = 1000.0
    return x
