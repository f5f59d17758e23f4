"""RMSNorm, a block of rows per program: as many rows as warps, read as tiles of NUM_WARPS x BLOCK_SIZE.

Against `one_row`: fewer programs, and each chunk of the weight is read once for all rows of the block.
NUM_STAGES is how many chunks of BLOCK_SIZE columns are in flight: both loops are unrolled by it.
"""

import torch
import triton
import triton.language as tl

# --- knobs
BLOCK_SIZE = 256
NUM_WARPS = 4
NUM_STAGES = 2
# --- end of knobs

EPS = 1e-6


@triton.jit
def rmsnorm_row_block(
    x_ptr, weight_ptr, y_ptr, rows, D, eps, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, NUM_STAGES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    real = row < rows  # the last block may be short
    columns = tl.arange(0, BLOCK_SIZE)[None, :]
    squares = tl.zeros([ROWS, BLOCK_SIZE], tl.float32)
    for start in tl.range(0, D, BLOCK_SIZE, num_stages=1, loop_unroll_factor=NUM_STAGES):
        column = start + columns
        x = tl.load(x_ptr + row * D + column, mask=real & (column < D), other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / D + eps)
    for start in tl.range(0, D, BLOCK_SIZE, num_stages=1, loop_unroll_factor=NUM_STAGES):
        column = start + columns
        inside = real & (column < D)
        x = tl.load(x_ptr + row * D + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=column < D, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * D + column, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rmsnorm(x, weight, eps=EPS):
    """x[..., D], weight[D] -> x / sqrt(mean(x^2) + eps) * weight, shaped and typed like x."""
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    D = x.shape[-1]
    rows = x.numel() // D
    rmsnorm_row_block[(triton.cdiv(rows, NUM_WARPS),)](
        x, weight, y, rows, D, eps, NUM_WARPS, BLOCK_SIZE, NUM_STAGES, num_warps=NUM_WARPS, num_stages=NUM_STAGES
    )
    return y
