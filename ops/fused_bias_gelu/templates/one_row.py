"""GELU(x + bias), one program per row, walking over it in chunks of BLOCK_SIZE columns.

NUM_STAGES is how many chunks are in flight: the loop is unrolled by it.
"""

import torch
import triton
import triton.language as tl

# --- knobs
BLOCK_SIZE = 512
NUM_WARPS = 4
NUM_STAGES = 2
# --- end of knobs


@triton.jit
def gelu_tanh(u):
    # 0.5 * (1 + tanh(z)) = sigmoid(2z), which does not cancel for large negative u; 1.5957691216 = 2 * sqrt(2 / pi)
    return u / (1.0 + tl.exp(-1.5957691216057308 * (u + 0.044715 * u * u * u)))


@triton.jit
def bias_gelu_one_row(x_ptr, bias_ptr, y_ptr, D, BLOCK_SIZE: tl.constexpr, NUM_STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * D  # 64 bit: a tensor may hold more than 2^31 elements
    columns = tl.arange(0, BLOCK_SIZE)
    for start in tl.range(0, D, BLOCK_SIZE, num_stages=1, loop_unroll_factor=NUM_STAGES):
        column = start + columns
        inside = column < D
        x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + column, gelu_tanh(x + bias).to(y_ptr.dtype.element_ty), mask=inside)


def fused_bias_gelu(x, bias):
    """x[..., D], bias[D] -> gelu_tanh(x + bias), shaped and typed like x."""
    x, bias = x.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    D = x.shape[-1]
    bias_gelu_one_row[(x.numel() // D,)](
        x, bias, y, D, BLOCK_SIZE, NUM_STAGES, num_warps=NUM_WARPS, num_stages=NUM_STAGES
    )
    return y
