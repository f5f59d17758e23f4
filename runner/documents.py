"""The JSON files of a bundle, checked key by key: judge, guest and host must read one and the same thing.

Unknown keys are errors: a misspelt `protected` must never silently unprotect a case.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ops import wire

BOUNDS = wire.Bounds(size=1 << 20, text=1 << 20, items=1 << 16)
"""Of one document. A case's parameters lie three levels down: what is left of the depth fits the wire's own limit."""


class DocumentError(Exception):
    """One line: file, place, problem."""


def cases(raw: bytes) -> list[dict[str, Any]]:
    """cases.json, as written: at least one case, ids distinct, one or more protected."""
    document: list[dict[str, Any]] = _validated(TypeAdapter(list[_Case]), "cases.json", raw)
    if not document:
        raise DocumentError("cases.json: no case")
    ids = [case["case_id"] for case in document]
    repeated = next((name for name in ids if ids.count(name) > 1), None)
    if repeated is not None:
        raise DocumentError(f"cases.json: duplicate case_id {repeated!r}")
    if not any(case.get("protected", True) for case in document):
        raise DocumentError("cases.json: at least one case must be protected")
    return document


def target(raw: bytes) -> dict[str, Any]:
    """target.json, as written."""
    document: dict[str, Any] = _validated(TypeAdapter(_Target), "target.json", raw)
    return document


def budget(raw: bytes) -> dict[str, Any]:
    """budget.json, as written: an absent key means that the caller's own setting holds."""
    document: dict[str, Any] = _validated(TypeAdapter(_Budget), "budget.json", raw)
    return document


def _scalars(value: Any) -> Any:
    """A case parameter: a JSON scalar, or lists of them."""
    if isinstance(value, list):
        return [_scalars(item) for item in value]
    if isinstance(value, dict):
        raise ValueError("an object is not allowed; scalars and lists are")
    return value


def _no_case_id(parameters: dict[str, Any]) -> dict[str, Any]:
    if "case_id" in parameters:
        raise ValueError("`case_id` is reserved: the judge adds it")
    return parameters


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Case(_Strict):
    case_id: str = Field(min_length=1, max_length=200)
    parameters: Annotated[dict[str, Annotated[Any, AfterValidator(_scalars)]], AfterValidator(_no_case_id)] = {}
    weight: float = Field(default=1.0, gt=0, le=1e9)
    protected: bool = True


class _Target(_Strict):
    backend: str = Field(min_length=1)
    architecture: str = Field(min_length=1)
    device: str | None = None
    environment: dict[str, str] = {}
    optimization_guidance: str = ""


class _Budget(_Strict):
    max_rounds: int = Field(default=5, gt=0)
    candidates_per_round: int = Field(default=2, gt=0)
    max_candidate_seconds: float = Field(default=600, gt=0)
    max_total_seconds: float = Field(default=3600, gt=0)
    min_speedup: float = Field(default=1.01, ge=1)
    max_cv: float = Field(default=0.10, ge=0)
    benchmark_repetitions: int = Field(default=10, gt=0)


def _validated(adapter: TypeAdapter[Any], name: str, raw: bytes) -> Any:
    """The parsed document, checked against the model; as written, so that absent keys stay absent."""
    try:
        document = wire.read_json(raw, BOUNDS)
        adapter.validate_python(document)
    except ValidationError as error:
        raise DocumentError(f"{name}: {' '.join(_first(error).split())}") from None
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: not strict JSON: {' '.join(str(error).split())}") from None
    return document


def _first(error: ValidationError) -> str:
    """The first complaint, in words that do not name our classes."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    ours = {"extra_forbidden": "unknown key", "model_type": "Input should be an object"}
    text = ours.get(first["type"], first["msg"].removeprefix("Value error, "))
    return f"{where}: {text}" if where else text
