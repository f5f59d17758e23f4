"""The frozen contract of an episode: read, check, identify and freeze it, and show guests their part.

A bundle is a handful of small files that its author wrote and its user trusts. Even so nothing in it is executed here:
Python files are parsed, never imported (they run in the judge's or a guest's container). The digest over the manifest
is the bundle's identity: audits name it, and results compare within one digest only.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import stat
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner import documents
from sandbox.collect import Caps, CollectError, collect

MAX_FILE_BYTES = 1 << 20
FLAT = Caps(16 * MAX_FILE_BYTES, total_bytes=16 * MAX_FILE_BYTES, entries=16, depth=1)
"""Of a folder that was mounted into a container: files only. What guests see of cases.json is wider than it was written."""
REQUIRED = ("kernel.py", "task.py", "cases.json", "target.json")
OPTIONAL = ("reference_kernel.py", "budget.json")


class BundleError(Exception):
    """The bundle is unusable; the message is one line that says which file and why."""


@dataclass(frozen=True)
class Case:
    """One workload. A protected case must be right and must not regress, else nothing is promoted."""

    case_id: str
    parameters: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    protected: bool = True


@dataclass(frozen=True)
class Bundle:
    """A checked bundle, held as the exact bytes of its files."""

    files: Mapping[str, bytes]
    entry: str
    """The function of kernel.py that is called with the inputs."""
    cases: tuple[Case, ...]
    target: dict[str, Any]
    budget: dict[str, Any]
    """Only what budget.json says; empty without one."""

    @property
    def manifest(self) -> dict[str, str]:
        """File name -> `sha256:<hex>`, in the order of names."""
        return {name: _sha256(self.files[name]) for name in sorted(self.files)}

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the manifest. Parts carry their length: no two manifests spell the same bytes."""
        parts = [part.encode() for entry in self.manifest.items() for part in entry]
        return _sha256(b"assay-bundle-1" + b"".join(len(part).to_bytes(8, "big") + part for part in parts))

    @property
    def kernel(self) -> bytes:
        """The baseline's complete source."""
        return self.files["kernel.py"]

    @property
    def weights(self) -> dict[str, float]:
        return {case.case_id: case.weight for case in self.cases}

    @property
    def protected(self) -> frozenset[str]:
        return frozenset(case.case_id for case in self.cases if case.protected)


def load(path: Path) -> Bundle:
    """Read and check a directory. Files that are no part of a bundle are left alone and not seen by anybody."""
    known = (*REQUIRED, *OPTIONAL, "harness.py")
    try:
        return from_files(read_folder(path, known))
    except NotADirectoryError:
        raise BundleError(f"{path}: a bundle is a directory") from None
    except FileNotFoundError:
        raise BundleError(f"{path}: no such directory") from None
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from None
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from None


def from_files(files: Mapping[str, bytes]) -> Bundle:
    """Check the files of a bundle: name -> exact bytes. Raises BundleError with one line."""
    _check_names(files)
    entry = _check_task(files["task.py"])
    if entry not in top_level_names(files["kernel.py"], "kernel.py"):
        raise BundleError(f"kernel.py: defines no top-level `{entry}` (ENTRY of task.py)")
    if "reference_kernel.py" in files:
        top_level_names(files["reference_kernel.py"], "reference_kernel.py")
    try:
        cases = documents.cases(files["cases.json"])
        target = documents.target(files["target.json"])
        budget = documents.budget(files.get("budget.json", b"{}"))
    except documents.DocumentError as error:
        raise BundleError(str(error)) from None
    return Bundle(MappingProxyType(dict(files)), entry, tuple(_case(case) for case in cases), target, budget)


def write(bundle: Bundle, into: Path) -> None:
    """A frozen copy for mounting into the judge: files 0444, directory 0555. Existing files are never overwritten."""
    _write(bundle.files, into)
    into.chmod(0o555)


def project(bundle: Bundle, into: Path) -> None:
    """What a guest may see: the target, and each case's id and parameters. The unit adds its own kernel.py.

    Not there: task.py, the reference, weights and protection (a guest must not know which case counts how much).
    """
    cases = [{"case_id": case.case_id, "parameters": case.parameters} for case in bundle.cases]
    public = {"target.json": bundle.files["target.json"], "cases.json": json.dumps(cases, indent=1).encode() + b"\n"}
    _write(public, into)
    into.chmod(0o755)


def check_intact(bundle: Bundle, folder: Path) -> bool:
    """Whether `folder` holds exactly the bundle's files, byte for byte."""
    try:
        return hash_folder(folder) == bundle.manifest
    except (CollectError, OSError):
        return False


def hash_folder(folder: Path) -> dict[str, str]:
    """Name -> `sha256:<hex>` of all in a flat folder that a container saw. CollectError on anything but plain files."""
    return {name: _sha256(raw) for name, raw in collect(folder, FLAT).items()}


def read_folder(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Those of `names` that exist in `folder`: regular files within the size limit, links not followed."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = {name: _read(directory, name) for name in names}
    finally:
        os.close(directory)
    return {name: raw for name, raw in found.items() if raw is not None}


def top_level_names(source: bytes, label: str) -> frozenset[str]:
    """Names of functions and assignments at module level. Parsed, never run; BundleError names line and problem."""
    names: set[str] = set()
    for node in _parse(source, label).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        names.update(target.id for target in _targets(node))
    return frozenset(names)


def _case(document: dict[str, Any]) -> Case:
    return Case(**{**document, "weight": float(document.get("weight", 1.0))})


def _sha256(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _read(directory: int, name: str) -> bytes | None:
    """NONBLOCK, because opening a FIFO would otherwise wait for its writer for ever."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{name}: not a regular file ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BundleError(f"{name}: not a regular file")
    with os.fdopen(handle, "rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    _check_size(name, raw)
    return raw


def _write(files: Mapping[str, bytes], into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        with open(into / name, "xb") as file:
            file.write(raw)
            os.fchmod(file.fileno(), 0o444)


def _check_size(name: str, raw: bytes) -> None:
    if len(raw) > MAX_FILE_BYTES:
        raise BundleError(f"{name}: larger than {MAX_FILE_BYTES} bytes")


def _check_names(files: Mapping[str, bytes]) -> None:
    if "harness.py" in files:
        if "task.py" in files:
            raise BundleError("both task.py and harness.py: a bundle has one of the two")
        raise BundleError(
            "harness.py: bundles of grade `shared` are not supported yet; give the split contract, task.py"
        )
    missing = [name for name in REQUIRED if name not in files]
    if missing:
        raise BundleError(f"missing {', '.join(missing)}")
    unknown = sorted(set(files) - {*REQUIRED, *OPTIONAL})
    if unknown:
        raise BundleError(f"{unknown[0]}: not a file of a bundle")
    for name, raw in files.items():
        _check_size(name, raw)


def _parse(source: bytes, label: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(source.decode("utf-8"))
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "not Python source"
        raise BundleError(f"{label}: {where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BundleError(f"{label}: not Python source: {error or type(error).__name__}") from None


def _targets(node: ast.stmt) -> list[ast.Name]:
    """Plain names that a statement assigns to."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return [target for target in targets if isinstance(target, ast.Name)]


def _check_task(source: bytes) -> str:
    """The task's ENTRY, after a look at what else it must define."""
    names = top_level_names(source, "task.py")
    missing = [name for name in ("ENTRY", "make_inputs", "reference") if name not in names]
    if missing:
        raise BundleError(f"task.py: does not define {', '.join(missing)} at the top level")
    for node in _parse(source, "task.py").body:
        if any(target.id == "ENTRY" for target in _targets(node)):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.isidentifier():
                return value.value
    raise BundleError("task.py: ENTRY must be a string literal that is a function's name")
