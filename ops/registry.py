"""The operators that come with the program, and how one becomes a bundle or a candidate.

An operator is a directory beside this file with contract.yaml, reference.py and templates/*.py; there is nothing to register.
`reference.py` is the bundle's task.py, byte for byte. Host side: sources are text here, and torch is never imported.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ops import contract as contracts
from ops.contract import Contract, ContractError

HERE = Path(__file__).parent
ODD_WEIGHT = 0.01
"""The odd case is there for correctness: protected, so one wrong element rejects; light, so its tiny launch decides no speed."""
ARCHITECTURE = {"cuda": "sm_90", "cpu": "cpu-interpreter"}
_KNOBS = re.compile(r"^# --- knobs\n(?P<block>.*?)^# --- end of knobs\n", re.DOTALL | re.MULTILINE)
_KNOB = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]*) = (?P<value>\d+|True|False)$")


class RegistryError(Exception):
    """What was asked for does not exist or makes no sense; one line."""


@dataclass(frozen=True)
class Knobs:
    """One point of a search space. Knobs that are not named stay as the template has them."""

    template: str
    knobs: Mapping[str, int | bool]


@dataclass(frozen=True)
class Operator:
    """One operator, read from its directory."""

    name: str
    contract: Contract
    reference: bytes
    templates: Mapping[str, str]
    """Name -> source, in the contract's order."""

    def shape(self, given: Mapping[str, int] | None, device: str) -> dict[str, int]:
        """The checked shape; without one, the contract's `default` (GPU) or `cpu` (interpreter)."""
        self._check_device(device)
        named = "cpu" if device == "cpu" else "default"
        if given is None:
            if named not in self.contract.shapes:
                raise RegistryError(f"{self.name}: no shape named `{named}`; give one: {self._symbols()}")
            return dict(self.contract.shapes[named])
        for problem, names in (
            ("unknown shape symbol", set(given) - self.contract.symbols),
            ("missing shape symbol", self.contract.symbols - set(given)),
        ):
            if names:
                raise RegistryError(f"{self.name}: {problem} {min(names)}; it takes {self._symbols()}")
        for symbol, size in given.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise RegistryError(f"{self.name}: {symbol}={size}: a size is a whole number above 0")
        return dict(given)

    def baseline(self) -> bytes:
        """The first template as it stands."""
        return next(iter(self.templates.values())).encode()

    def bundle(
        self, shape: Mapping[str, int] | None, dtype: str, device: str, architecture: str | None = None
    ) -> dict[str, bytes]:
        """Files of a bundle: case `main` has the shape, case `odd` (ODD_WEIGHT, protected) the contract's odd sizes."""
        cases = [_case("main", self.shape(shape, device), dtype, 1.0)]
        if dtype not in self.contract.dtype:
            raise RegistryError(f"{self.name}: unknown dtype {dtype!r}; it takes {', '.join(self.contract.dtype)}")
        if "odd" in self.contract.shapes:
            cases.append(_case("odd", self.contract.shapes["odd"], dtype, ODD_WEIGHT))
        target = {"backend": device, "architecture": architecture or ARCHITECTURE[device]}
        return {
            "kernel.py": self.baseline(),
            "task.py": self.reference,
            "cases.json": _json(cases),
            "target.json": _json(target),
        }

    def space(self, device: str) -> list[Knobs]:
        """Every template with every combination of its knobs, in grid order: the last knob varies fastest."""
        self._check_device(device)
        points = []
        for template in self.templates:
            axes = self.contract.space(template, device)
            for values in itertools.product(*axes.values()):
                points.append(Knobs(template, dict(zip(axes, values, strict=True))))
        return points

    def render(self, template: str, knobs: Mapping[str, int | bool]) -> bytes:
        """The complete source of one candidate: the template with `knobs` written into its marked block."""
        if template not in self.templates:
            raise RegistryError(f"{self.name}: unknown template {template!r}; it has {', '.join(self.templates)}")
        source = self.templates[template]
        values = {**_defaults(source, template), **{name.upper(): value for name, value in knobs.items()}}
        unknown = sorted(set(values) - set(_defaults(source, template)))
        if unknown:
            raise RegistryError(f"{self.name}: template {template} has no knob {unknown[0]}")
        block = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        start, end = _block(source, template).span("block")
        return (source[:start] + block + source[end:]).encode()

    def _check_device(self, device: str) -> None:
        if device not in self.contract.device:
            raise RegistryError(f"{self.name}: unknown device {device!r}; it takes {', '.join(self.contract.device)}")

    def _symbols(self) -> str:
        shape = next(iter(self.contract.shapes.values()), dict.fromkeys(sorted(self.contract.symbols)))
        return ",".join(shape)


def names() -> list[str]:
    """Every directory here that holds a contract."""
    return sorted(path.parent.name for path in HERE.glob("*/contract.yaml"))


@cache
def get(name: str) -> Operator:
    """Raises RegistryError for a name that is none of `names()`, ContractError for an operator that is not whole."""
    if name not in names():
        raise RegistryError(f"unknown operator {name!r}; known: {', '.join(names())}")
    return read(HERE / name)


def read(folder: Path) -> Operator:
    """Read an operator's directory. Every knob of its search spaces must be in the template's block."""
    contract = contracts.load(folder / "contract.yaml")
    if contract.op != folder.name:
        raise ContractError(f"{folder.name}: the contract is for {contract.op!r}")
    try:
        reference = (folder / "reference.py").read_bytes()
        templates = {name: (folder / "templates" / f"{name}.py").read_text("utf-8") for name in contract.templates}
    except OSError as error:
        raise ContractError(f"{folder.name}: {error.strerror}: {error.filename}") from None
    if not templates:
        raise ContractError(f"{folder.name}: no templates")
    operator = Operator(folder.name, contract, reference, templates)
    for device in contract.device:
        for point in operator.space(device):
            operator.render(point.template, point.knobs)
    return operator


def _block(source: str, template: str) -> re.Match[str]:
    found = _KNOBS.search(source)
    if found is None:
        raise ContractError(f"template {template}: no block between `# --- knobs` and `# --- end of knobs`")
    return found


def _defaults(source: str, template: str) -> dict[str, int | bool]:
    """The knobs as the template has them."""
    found = {}
    for line in _block(source, template)["block"].splitlines():
        knob = _KNOB.match(line)
        if knob is None:
            raise ContractError(f"template {template}: not a knob: {line!r}")
        found[knob["name"]] = json.loads(knob["value"].lower())
    return found


def _case(case_id: str, shape: Mapping[str, int], dtype: str, weight: float) -> dict[str, object]:
    return {"case_id": case_id, "parameters": {**shape, "dtype": dtype}, "weight": weight, "protected": True}


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
