"""Contracts: the seed's files are understood whole, nothing is dropped, and nonsense is one clear line."""

from __future__ import annotations

import math

import pytest

from ops import contract
from ops.contract import Bound, Contract, ContractError

ROWS = {"num_warps": "[1, 2, 4, 8]", "num_stages": "[2, 3, 4]"}
CACHE = {"BLOCK_SIZE": "[64, 128, 256]", "num_warps": "[2, 4, 8]", "num_stages": "[2, 3, 4]"}
TILES = {"BLOCK_M": "[64, 128, 256]", "BLOCK_N": "[64, 128, 256]", "BLOCK_K": "[32, 64, 128]", "num_warps": "[4, 8]"}
FOUR = {"BLOCK_SIZE": "[64, 128, 256, 512]", **ROWS}
BTD = "[B, T, D]"
CACHES = {"k_cache": "[B, H, L, D]", "v_cache": "[B, H, L, D]"}
SEED = {
    "rmsnorm": ({"x": BTD, "weight": "[D]"}, {"y": BTD}, {"BLOCK_SIZE": "[64, 128, 256, 512, 1024]", **ROWS}, 60),
    "rope": ({"x": "[B, H, T, D]", "cos": "[T, D]", "sin": "[T, D]"}, {"y": "[B, H, T, D]"}, FOUR, 48),
    "fused_bias_gelu": ({"x": BTD, "bias": "[D]"}, {"y": BTD}, FOUR, 48),
    "swiglu": ({"x": BTD, "gate": BTD}, {"y": BTD}, FOUR, 48),
    "quant_dequant": ({"x": BTD}, {"y": BTD}, FOUR, 48),
    "layernorm": ({"x": BTD, "weight": "[D]", "bias": "[D]"}, {"y": BTD}, FOUR, 48),
    "kv_append": (
        {**CACHES, "k_new": "[B, H, T_new, D]", "v_new": "[B, H, T_new, D]", "slot_mapping": "[B, T_new]"},
        {"k_out": "[B, H, L, D]", "v_out": "[B, H, L, D]"},
        CACHE,
        27,
    ),
    "rope_kv_append": (
        {"k_new": "[B, H, T_new, D]", "cos": "[T_new, D]", "sin": "[T_new, D]", "k_cache": "[B, H, L, D]"},
        {"k_out": "[B, H, L, D]"},
        CACHE,
        27,
    ),
    "paged_kv": (
        {"k_cache": "[num_blocks, block_size, H, D]", "k_new": "[B, T_new, H, D]", "slot_mapping": "[B, T_new]"},
        {"k_out": "[num_blocks, block_size, H, D]"},
        CACHE,
        27,
    ),
    "paged_attention": (
        {"q": "[B, H, D]", "k_cache": "[num_blocks, block_size, H, D]", "block_table": "[B, max_blocks]"},
        {"out": "[B, H, D]"},
        CACHE,
        27,
    ),
    "matmul_epilogue": (
        {"a": "[B, M, K]", "b": "[K, N]", "bias": "[N]"},
        {"c": "[B, M, N]"},
        {**TILES, "num_stages": "[2, 3, 4]"},
        162,
    ),
    "quant_matmul": (
        {"a": "[B, M, K]", "b": "[K, N]"},
        {"c": "[B, M, N]"},
        {**TILES, "num_stages": "[2, 3]"},
        108,
    ),
    "flash_attn_like": (
        {"q": "[B, H, T, D]", "k": "[B, H, S, D]", "v": "[B, H, S, D]"},
        {"out": "[B, H, T, D]"},
        {"BLOCK_M": "[64, 128]", "BLOCK_N": "[64, 128]", "BLOCK_D": "[64, 128]", "num_warps": "[4, 8]"}
        | {"num_stages": "[2, 3]"},
        32,
    ),
}
"""Facts of the seed's 13 contracts: inputs, outputs, search space, and how many combinations that declares."""

RMSNORM = """\
op: rmsnorm
inputs:
  x: [B, T, D]
  weight: [D]
outputs:
  y: [B, T, D]
"""


def seed_file(op: str) -> str:
    """A contract in the seed's form; the numbers without a dot are strings to a YAML 1.1 parser."""
    inputs, outputs, space, _ = SEED[op]
    sections = {"inputs": inputs, "outputs": outputs, "search_space": space}
    lines = [f"op: {op}"]
    for name, section in sections.items():
        lines += [f"{name}:", *(f"  {key}: {value}" for key, value in section.items())]
    lines += ["dtype: [fp16, int8]" if op == "quant_matmul" else "dtype: [fp16, bf16]", "device: [cuda]"]
    lines += ["tolerance:", "  max_abs_error: 1e-3", "  mean_abs_error: 1e-4"]
    lines += ["benchmark: {warmup: 20, repeat: 100, metric: latency_us_p50}"]
    lines += ["promotion: {min_speedup: 1.05, max_variance: 0.10, regression_required: true}"]
    return "\n".join(lines) + "\n"


def combinations(parsed: Contract) -> int:
    return math.prod(len(axis) for axis in parsed.search_space.values())


@pytest.mark.parametrize("op", SEED)
def test_a_seed_contract_declares_as_many_combinations_as_are_parsed(op: str) -> None:
    parsed = contract.parse(seed_file(op))
    assert (parsed.op, combinations(parsed), list(parsed.search_space)) == (op, SEED[op][3], list(SEED[op][2]))
    assert (parsed.tolerance.max_abs_error, parsed.tolerance.mean_abs_error) == (1e-3, 1e-4)


@pytest.mark.parametrize("op", SEED)
def test_a_contract_survives_being_written_and_read(op: str) -> None:
    parsed = contract.parse(seed_file(op))
    assert contract.parse(contract.dump(parsed)) == parsed


def test_defaults_are_the_seeds() -> None:
    parsed = contract.parse(RMSNORM)
    assert parsed.benchmark.model_dump() == {"warmup": 20, "repeat": 100, "metric": "latency_us_p50"}
    assert parsed.promotion.model_dump() == {"min_speedup": 1.05, "max_variance": 0.10, "regression_required": True}


def test_yaml_keys_that_look_like_booleans_stay_names() -> None:
    text = "op: f\ninputs: {a: [M, N]}\noutputs: {y: [N, M]}\nshapes: {default: {M: 2, N: 3}}\n"
    parsed = contract.parse(text)
    assert (parsed.outputs, parsed.shapes, parsed.symbols) == (
        {"y": ["N", "M"]},
        {"default": {"M": 2, "N": 3}},
        frozenset("MN"),
    )


def test_a_tolerance_may_stand_per_dtype() -> None:
    parsed = contract.parse(RMSNORM + "tolerance: {per_dtype: {fp16: {rtol: 1e-3, atol: 0}}}\n")
    assert parsed.tolerance.per_dtype == {"fp16": Bound(rtol=1e-3, atol=0)}


def test_a_template_may_replace_the_search_space_and_has_its_own_for_the_cpu() -> None:
    parsed = contract.parse(
        RMSNORM + "search_space: {BLOCK: [1, 2], num_stages: [2, 3]}\n"
        "templates: {v1: {}, v2: {search_space: {BLOCK: [4]}, search_space_cpu: {BLOCK: [8]}}}\n"
    )
    spaces = {(name, device): parsed.space(name, device) for name in parsed.templates for device in ("cuda", "cpu")}
    assert spaces == {
        ("v1", "cuda"): {"BLOCK": [1, 2], "num_stages": [2, 3]},
        ("v1", "cpu"): {},
        ("v2", "cuda"): {"BLOCK": [4]},
        ("v2", "cpu"): {"BLOCK": [8]},
    }


BAD = {
    "": "contract.yaml: Input should be a valid dictionary or instance of Contract",
    "op: [": "contract.yaml: not YAML: while parsing",
    RMSNORM.replace("op: rmsnorm\n", ""): "contract.yaml: op: Field required",
    RMSNORM + "colour: red\n": "contract.yaml: colour: unknown key",
    RMSNORM + "op: again\n": "contract.yaml: line 1: duplicate key 'op'",
    RMSNORM + "benchmark:\n  warmup: 1\n  warmup: 2\n": "contract.yaml: line 8: duplicate key 'warmup'",
    RMSNORM + "attributes: {no: 1}\n": "contract.yaml: line 7: key False is not a string; quote it",
    RMSNORM.replace("weight: [D]", "weight: D"): "contract.yaml: inputs.weight: Input should be a valid list",
    RMSNORM.replace("y: [B, T, D]", "y: [B, T, E]"): "contract.yaml: outputs.y: unknown symbol 'E'",
    RMSNORM + "shapes: {cpu: {B: 1, T: 2, D: 3, H: 4}}\n": "contract.yaml: shapes.cpu: unknown symbol 'H'",
    RMSNORM + "shapes: {cpu: {B: 1, T: 2}}\n": "contract.yaml: shapes.cpu: symbol 'D' is missing",
    RMSNORM + "shapes: {cpu: {B: 1, T: 2, D: 0}}\n": "contract.yaml: shapes.cpu.D: Input should be greater than 0",
    RMSNORM + "shapes: {cpu: {B: 1, T: 2, D: 1.5}}\n": "contract.yaml: shapes.cpu.D: Input should be a valid integer",
    RMSNORM + "search_space: {BLOCK: 64}\n": "contract.yaml: search_space.BLOCK: Input should be a valid list",
    RMSNORM + "search_space: {BLOCK: []}\n": "contract.yaml: search_space.BLOCK: List should have at least 1 item",
    RMSNORM + "search_space: {BLOCK: [8, 8]}\n": "contract.yaml: search_space.BLOCK: a value stands there twice",
    RMSNORM + "search_space: {BLOCK: [big]}\n": "contract.yaml: search_space.BLOCK.0: Input should be a valid integer",
    RMSNORM + "dtype: [fp8]\n": "contract.yaml: dtype.0: Input should be 'fp16', 'bf16', 'fp32' or 'int8'",
    RMSNORM + "device: [tpu]\n": "contract.yaml: device.0: Input should be 'cuda' or 'cpu'",
    RMSNORM + "tolerance: {max_abs_error: -1e-3}\n": "contract.yaml: tolerance.max_abs_error: Input should be greater",
    RMSNORM + "tolerance: {max_abs_error: .nan}\n": "contract.yaml: tolerance.max_abs_error: Input should be a finite",
    RMSNORM + "tolerance: {max_abs_error: tiny}\n": "contract.yaml: tolerance.max_abs_error: Input should be a valid",
    RMSNORM + "promotion: {min_speedup: 0.9}\n": "contract.yaml: promotion.min_speedup: Input should be greater than",
    RMSNORM + "benchmark: {repeat: 0}\n": "contract.yaml: benchmark.repeat: Input should be greater than 0",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_contract_is_one_clear_line(text: str) -> None:
    with pytest.raises(ContractError) as caught:
        contract.parse(text)
    assert str(caught.value).startswith(BAD[text])
    assert "\n" not in str(caught.value)
