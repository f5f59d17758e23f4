"""contract.yaml of an operator, typed: names, shapes, dtypes, search space, and what promotes a candidate.

The keys of the seed's files are all understood, and a superset of them (docs/operators.md). Nothing that a file says is
dropped: an unknown key is an error, and so is a symbol that no input has. Host side only; the judge never reads YAML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator


class ContractError(Exception):
    """The contract is unusable; one line: file, place, problem."""


def _number(value: Any) -> Any:
    """YAML 1.1 reads `1e-3`, without a dot, as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _distinct(values: list[Any]) -> list[Any]:
    if len(values) != len(set(values)):
        raise ValueError("a value stands there twice")
    return values


def _identifiers(values: dict[str, Any]) -> dict[str, Any]:
    wrong = next((name for name in values if not name.isidentifier()), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is not a name")
    return values


Number = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Size = Annotated[int, Field(gt=0)]
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Tensors = Annotated[dict[str, list[Symbol]], Field(min_length=1), AfterValidator(_identifiers)]
"""Tensor name -> its dimensions, by symbol."""
Axis = Annotated[list[int | bool], Field(min_length=1), AfterValidator(_distinct)]
Space = Annotated[dict[str, Axis], AfterValidator(_identifiers)]
"""Knob -> the values it may take."""
Dtype = Literal["fp16", "bf16", "fp32", "int8"]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Bound(_Strict):
    """|y - exact| <= atol + rtol * |exact|."""

    rtol: Number
    atol: Number


class Tolerance(_Strict):
    """The seed's two numbers hold for every dtype at once, which half precision cannot reach: nothing is judged by them."""

    max_abs_error: Number | None = None
    mean_abs_error: Number | None = None
    per_dtype: dict[Dtype, Bound] = {}
    """What the tests hold every template to. The judge derives its own budget, from float64 (see reference.py)."""


class Benchmark(_Strict):
    warmup: Annotated[int, Field(ge=0)] = 20
    repeat: Size = 100
    metric: Literal["latency_us_p50", "latency_us_p90", "latency_us_p99"] = "latency_us_p50"


class Promotion(_Strict):
    min_speedup: Annotated[Number, Field(ge=1)] = 1.05
    max_variance: Number = 0.10
    """Coefficient of variation, in spite of its name."""
    regression_required: bool = True


class Template(_Strict):
    """templates/<name>.py."""

    search_space: Space | None = None
    """In place of the contract's, where a knob of that would do nothing in this template."""
    search_space_cpu: Space = {}
    """For Triton's interpreter. Knobs that are missing stay as the template has them."""


class Contract(_Strict):
    op: Symbol
    inputs: Tensors
    outputs: Tensors
    attributes: dict[str, Number] = {}
    """Scalars of the definition (eps)."""
    dtype: Annotated[list[Dtype], AfterValidator(_distinct)] = []
    device: Annotated[list[Literal["cuda", "cpu"]], AfterValidator(_distinct)] = []
    tolerance: Tolerance = Tolerance()
    shapes: dict[str, dict[Symbol, Size]] = {}
    """Named shapes. `default` is used on a GPU, `cpu` in the interpreter, `odd` as the correctness case of every bundle."""
    search_space: Space = {}
    templates: dict[Symbol, Template] = {}
    """In order; the first one, as it stands, is the baseline."""
    benchmark: Benchmark = Benchmark()
    promotion: Promotion = Promotion()

    @property
    def symbols(self) -> frozenset[str]:
        """What a shape must say."""
        return frozenset(symbol for dimensions in self.inputs.values() for symbol in dimensions)

    def space(self, template: str, device: str) -> dict[str, list[int | bool]]:
        """The axes of one template's search space."""
        own = self.templates[template]
        if device == "cpu":
            return own.search_space_cpu
        return self.search_space if own.search_space is None else own.search_space

    @model_validator(mode="after")
    def _symbols_are_known(self) -> Self:
        places = [(f"outputs.{name}", set(dimensions)) for name, dimensions in self.outputs.items()]
        places += [(f"shapes.{name}", set(shape)) for name, shape in self.shapes.items()]
        for place, symbols in places:
            if unknown := sorted(symbols - self.symbols):
                raise ValueError(f"{place}: unknown symbol {unknown[0]!r}")
        for name, shape in self.shapes.items():
            if missing := sorted(self.symbols - set(shape)):
                raise ValueError(f"shapes.{name}: symbol {missing[0]!r} is missing")
        return self


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML would silently take the last."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for index, key in enumerate(keys):
        if not isinstance(key, str):
            raise ContractError(f"line {node.start_mark.line + 1}: key {key!r} is not a string; quote it")
        if key in keys[:index]:
            raise ContractError(f"line {node.start_mark.line + 1}: duplicate key {key!r}")
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value, strict=True)}


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse(text: str, label: str = "contract.yaml") -> Contract:
    """Raises ContractError with one line."""
    try:
        return Contract.model_validate(yaml.load(text, _Loader))
    except ContractError as error:
        raise ContractError(f"{label}: {error}") from None
    except yaml.YAMLError as error:
        raise ContractError(f"{label}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise ContractError(f"{label}: {_first(error)}") from None


def load(path: Path) -> Contract:
    """Raises ContractError with one line."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"{path}: {error}") from None


def dump(contract: Contract) -> str:
    """YAML that parses back to an equal contract."""
    return yaml.safe_dump(contract.model_dump(exclude_unset=True), sort_keys=False, default_flow_style=None)


def _first(error: ValidationError) -> str:
    """The first complaint; for a choice between types, the place they all mean."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("int", "bool", "float"))
    text = first["msg"].removeprefix("Value error, ")
    text = "unknown key" if first["type"] == "extra_forbidden" else text
    return f"{where}: {text}" if where else text
