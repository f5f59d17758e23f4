"""Operators by name: their spaces, candidates and bundles; and every request that makes no sense is one line."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

from ops import contract, registry
from ops.contract import ContractError
from ops.registry import Knobs, Operator, RegistryError
from runner import bundle as bundles

NAMES = ["fused_bias_gelu", "matmul_epilogue", "rmsnorm"]
COMBINATIONS = {"rmsnorm": 60, "fused_bias_gelu": 48, "matmul_epilogue": 162}
TEMPLATES = {
    "rmsnorm": ["one_row", "row_block"],
    "fused_bias_gelu": ["one_row", "column_strip"],
    "matmul_epilogue": ["tiled"],
}


@pytest.fixture(params=NAMES)
def operator(request: pytest.FixtureRequest) -> Operator:
    return registry.get(request.param)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """An operator's directory that a test may spoil."""
    return Path(shutil.copytree(registry.HERE / "rmsnorm", tmp_path / "rmsnorm"))


def test_the_operators_are_the_directories_with_a_contract() -> None:
    assert registry.names() == NAMES


def test_each_template_has_every_combination_that_the_contract_declares(operator: Operator) -> None:
    space = operator.space("cuda")
    counts = {name: sum(point.template == name for point in space) for name in operator.templates}
    assert counts == dict.fromkeys(TEMPLATES[operator.name], COMBINATIONS[operator.name])


def test_every_point_of_a_space_is_a_source_of_its_own(operator: Operator) -> None:
    for device in ("cuda", "cpu"):
        space = operator.space(device)
        assert len({operator.render(point.template, point.knobs) for point in space}) == len(space)


def test_the_grid_goes_template_by_template_with_the_last_knob_fastest() -> None:
    space = registry.get("rmsnorm").space("cuda")
    assert [space[0], space[1], space[3], space[60]] == [
        Knobs("one_row", {"BLOCK_SIZE": 64, "num_warps": 1, "num_stages": 2}),
        Knobs("one_row", {"BLOCK_SIZE": 64, "num_warps": 1, "num_stages": 3}),
        Knobs("one_row", {"BLOCK_SIZE": 64, "num_warps": 2, "num_stages": 2}),
        Knobs("row_block", {"BLOCK_SIZE": 64, "num_warps": 1, "num_stages": 2}),
    ]


def test_a_rendered_source_holds_the_knobs_and_changes_nothing_else() -> None:
    operator = registry.get("rmsnorm")
    source = operator.render("one_row", {"BLOCK_SIZE": 64, "num_warps": 8}).decode()
    template = operator.templates["one_row"]
    assert source == template.replace("BLOCK_SIZE = 1024\nNUM_WARPS = 4\n", "BLOCK_SIZE = 64\nNUM_WARPS = 8\n")
    assert source != template


def test_the_baseline_is_the_first_template_as_it_stands(operator: Operator) -> None:
    first = next(iter(operator.templates))
    assert operator.baseline() == operator.render(first, {}) == operator.templates[first].encode()


def test_a_candidate_is_complete_defines_the_entry_and_uses_only_torch_and_triton(operator: Operator) -> None:
    for name in operator.templates:
        source = operator.render(name, {})
        tree = ast.parse(source)
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert imported == {"torch", "triton", "triton.language"}
        assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
        assert operator.name in bundles.top_level_names(source, name)


def test_attributes_of_the_contract_are_those_of_the_sources() -> None:
    operator = registry.get("rmsnorm")
    line = "\nEPS = 1e-6\n"
    assert operator.contract.attributes == {"eps": 1e-6}
    assert all(line in text for text in [operator.reference.decode(), *operator.templates.values()])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_operator_becomes_a_sound_bundle_in_every_dtype(operator: Operator, device: str) -> None:
    for dtype in ("fp16", "bf16", "fp32"):
        bundle = bundles.from_files(operator.bundle(None, dtype, device))
        named = "cpu" if device == "cpu" else "default"
        assert (bundle.entry, bundle.kernel, bundle.files["task.py"]) == (
            operator.name,
            operator.baseline(),
            operator.reference,
        )
        assert bundle.cases == (
            bundles.Case("main", {**operator.contract.shapes[named], "dtype": dtype}, 1.0, True),
            bundles.Case("odd", {**operator.contract.shapes["odd"], "dtype": dtype}, registry.ODD_WEIGHT, True),
        )


def test_a_bundle_is_the_same_bytes_every_time_and_follows_what_was_asked() -> None:
    operator = registry.get("rmsnorm")
    shape = {"B": 2, "T": 3, "D": 5}
    first, second = (operator.bundle(shape, "bf16", "cuda", "sm_100") for _ in range(2))
    assert first == second
    assert json.loads(first["target.json"]) == {"backend": "cuda", "architecture": "sm_100"}
    assert json.loads(first["cases.json"])[0]["parameters"] == {"B": 2, "T": 3, "D": 5, "dtype": "bf16"}


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda op: registry.get("softmax"),
            "unknown operator 'softmax'; known: fused_bias_gelu, matmul_epilogue, rmsnorm",
        ),
        (
            lambda op: registry.get("../ops"),
            "unknown operator '../ops'; known: fused_bias_gelu, matmul_epilogue, rmsnorm",
        ),
        (lambda op: op.space("tpu"), "rmsnorm: unknown device 'tpu'; it takes cuda, cpu"),
        (lambda op: op.bundle(None, "fp8", "cpu"), "rmsnorm: unknown dtype 'fp8'; it takes fp16, bf16, fp32"),
        (lambda op: op.shape({"B": 1, "T": 1, "M": 1}, "cpu"), "rmsnorm: unknown shape symbol M; it takes B,T,D"),
        (lambda op: op.shape({"B": 1, "T": 1}, "cpu"), "rmsnorm: missing shape symbol D; it takes B,T,D"),
        (lambda op: op.shape({}, "cpu"), "rmsnorm: missing shape symbol B; it takes B,T,D"),
        (lambda op: op.shape({"B": 1, "T": 0, "D": 1}, "cpu"), "rmsnorm: T=0: a size is a whole number above 0"),
        (lambda op: op.shape({"B": 1, "T": 1.5, "D": 1}, "cpu"), "rmsnorm: T=1.5: a size is a whole number above 0"),
        (lambda op: op.render("fast", {}), "rmsnorm: unknown template 'fast'; it has one_row, row_block"),
        (lambda op: op.render("one_row", {"vectorize": 1}), "rmsnorm: template one_row has no knob VECTORIZE"),
    ],
)
def test_what_makes_no_sense_is_one_line(call, line: str) -> None:
    with pytest.raises(RegistryError) as caught:
        call(registry.get("rmsnorm"))
    assert str(caught.value) == line


def test_an_operator_read_from_its_directory_is_the_registered_one(copy: Path) -> None:
    assert registry.read(copy) == registry.get("rmsnorm")


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        ("contract.yaml", "op: rmsnorm", "op: norm", "rmsnorm: the contract is for 'norm'"),
        ("contract.yaml", "  num_stages:", "  vectorize:", "rmsnorm: template one_row has no knob VECTORIZE"),
        ("contract.yaml", "  row_block:", "  gone:", "rmsnorm: No such file or directory: "),
        ("templates/one_row.py", "# --- end of knobs", "", "template one_row: no block between `# --- knobs` and"),
        (
            "templates/one_row.py",
            "NUM_WARPS = 4",
            "NUM_WARPS = 2 + 2",
            "template one_row: not a knob: 'NUM_WARPS = 2 + 2'",
        ),
    ],
)
def test_an_operator_that_is_not_whole_is_one_line(copy: Path, file: str, old: str, new: str, line: str) -> None:
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    with pytest.raises((ContractError, RegistryError)) as caught:
        registry.read(copy)
    assert str(caught.value).startswith(line)


def test_a_shipped_contract_survives_being_written_and_read(operator: Operator) -> None:
    assert contract.parse(contract.dump(operator.contract)) == operator.contract
