"""GELU(x + bias), one program per strip of BLOCK_SIZE columns and ROWS rows: its piece of the bias is read once.

It walks down the strip in tiles of NUM_WARPS rows. NUM_STAGES is how many tiles are in flight: the loop is unrolled by it.
"""

import torch
import triton
import triton.language as tl

# --- knobs
BLOCK_SIZE = 512
NUM_WARPS = 4
NUM_STAGES = 2
# --- end of knobs

ROWS = 32


@triton.jit
def gelu_tanh(u):
    # 0.5 * (1 + tanh(z)) = sigmoid(2z), which does not cancel for large negative u; 1.5957691216 = 2 * sqrt(2 / pi)
    return u / (1.0 + tl.exp(-1.5957691216057308 * (u + 0.044715 * u * u * u)))


@triton.jit
def bias_gelu_column_strip(
    x_ptr,
    bias_ptr,
    y_ptr,
    rows,
    D,
    ROWS: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    strips = tl.cdiv(D, BLOCK_SIZE)
    column = tl.program_id(0) % strips * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    first = tl.program_id(0) // strips * ROWS
    bias = tl.load(bias_ptr + column, mask=column < D, other=0.0).to(tl.float32)
    for start in tl.range(
        first, tl.minimum(first + ROWS, rows), TILE_ROWS, num_stages=1, loop_unroll_factor=NUM_STAGES
    ):
        row = start + tl.arange(0, TILE_ROWS)[:, None]
        offset = row.to(tl.int64) * D + column  # 64 bit: a tensor may hold more than 2^31 elements
        inside = (row < rows) & (column < D)
        x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + offset, gelu_tanh(x + bias).to(y_ptr.dtype.element_ty), mask=inside)


def fused_bias_gelu(x, bias):
    """x[..., D], bias[D] -> gelu_tanh(x + bias), shaped and typed like x."""
    x, bias = x.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    D = x.shape[-1]
    rows = x.numel() // D
    grid = (triton.cdiv(D, BLOCK_SIZE) * triton.cdiv(rows, ROWS),)
    bias_gelu_column_strip[grid](
        x, bias, y, rows, D, ROWS, NUM_WARPS, BLOCK_SIZE, NUM_STAGES, num_warps=NUM_WARPS, num_stages=NUM_STAGES
    )
    return y
