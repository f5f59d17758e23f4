"""RMSNorm, one program per row: a first pass for the row's mean square, a second one (from cache) that scales it.

NUM_STAGES is how many chunks of BLOCK_SIZE columns are in flight: both loops are unrolled by it.
"""

import torch
import triton
import triton.language as tl

# --- knobs
BLOCK_SIZE = 1024
NUM_WARPS = 4
NUM_STAGES = 3
# --- end of knobs

EPS = 1e-6


@triton.jit
def rmsnorm_one_row(x_ptr, weight_ptr, y_ptr, D, eps, BLOCK_SIZE: tl.constexpr, NUM_STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * D  # 64 bit: a tensor may hold more than 2^31 elements
    columns = tl.arange(0, BLOCK_SIZE)
    squares = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in tl.range(0, D, BLOCK_SIZE, num_stages=1, loop_unroll_factor=NUM_STAGES):
        column = start + columns
        x = tl.load(x_ptr + row + column, mask=column < D, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / D + eps)
    for start in tl.range(0, D, BLOCK_SIZE, num_stages=1, loop_unroll_factor=NUM_STAGES):
        column = start + columns
        inside = column < D
        x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + column, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rmsnorm(x, weight, eps=EPS):
    """x[..., D], weight[D] -> x / sqrt(mean(x^2) + eps) * weight, shaped and typed like x."""
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    D = x.shape[-1]
    rmsnorm_one_row[(x.numel() // D,)](
        x, weight, y, D, eps, BLOCK_SIZE, NUM_STAGES, num_warps=NUM_WARPS, num_stages=NUM_STAGES
    )
    return y
