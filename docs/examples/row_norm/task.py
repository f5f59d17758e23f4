"""What is right. Runs in the judge's container only; no candidate ever sees this file."""

import torch

ENTRY = "row_norm"


def make_inputs(case, generator, device):
    return (torch.randn(case["rows"], case["columns"], generator=generator, device=device),)


def reference(x):
    return x / x.square().sum(dim=-1, keepdim=True).sqrt()


def distributions(case):
    """A hidden family of the final revalidation: rows of very different length."""

    def scaled(case, generator, device):
        (x,) = make_inputs(case, generator, device)
        return (x * torch.logspace(-3, 3, x.shape[0], device=device)[:, None],)

    return {"scaled-rows": scaled}
