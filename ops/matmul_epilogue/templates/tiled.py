"""GELU(a @ b + bias), one program per output tile of BLOCK_M x BLOCK_N, with the epilogue in registers.

The batch is folded into the rows of `a`. Tiles are numbered in groups of GROUP_M rows of tiles, so that programs that run at
the same time share rows of `a` and columns of `b` in the L2 cache.
"""

import torch
import triton
import triton.language as tl

# --- knobs
BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 64
NUM_WARPS = 8
NUM_STAGES = 3
# --- end of knobs

GROUP_M = 8
INTERPRETED = triton.knobs.runtime.interpret  # there, half-precision dot products are not to be trusted


@triton.jit
def gelu_tanh(u):
    # 0.5 * (1 + tanh(z)) = sigmoid(2z), which does not cancel for large negative u; 1.5957691216 = 2 * sqrt(2 / pi)
    return u / (1.0 + tl.exp(-1.5957691216057308 * (u + 0.044715 * u * u * u)))


@triton.jit
def matmul_epilogue_tiled(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    DOT_IN_FP32: tl.constexpr,
):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = tl.program_id(0) // per_group * GROUP_M
    group_m = tl.minimum(tiles_m - first_m, GROUP_M)
    tile_m = first_m + tl.program_id(0) % per_group % group_m
    tile_n = tl.program_id(0) % per_group // group_m

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + m.to(tl.int64) * K + k[None, :]
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * stride_bk + n.to(tl.int64) * stride_bn
    b_step = BLOCK_K * stride_bk.to(tl.int64)

    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(a_ptrs, mask=(m < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n < N), other=0.0)
        if DOT_IN_FP32:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += b_step

    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    c = gelu_tanh(total + bias).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m.to(tl.int64) * N + n, c, mask=(m < M) & (n < N))


def matmul_epilogue(a, b, bias):
    """a[..., M, K], b[K, N], bias[N] -> gelu_tanh(a @ b + bias)[..., M, N], typed like a. `b` may be transposed."""
    K, N = b.shape
    rows = a.reshape(-1, K).contiguous()
    c = torch.empty((*a.shape[:-1], N), dtype=a.dtype, device=a.device)
    M = rows.shape[0]
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_epilogue_tiled[grid](
        rows,
        b,
        bias.contiguous(),
        c,
        M,
        N,
        K,
        b.stride(0),
        b.stride(1),
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        GROUP_M,
        INTERPRETED,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    return c
