"""Imports point down only, and code that runs in containers imports what containers have.

import-linter holds the layers. It cannot see third-party imports that it was not told of (numpy, yaml), so the code
that runs in the judge's and the guest's environment is also read against an allow-list, and host modules that reach
torch by a string are found.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("eventstore", "images", "ops", "replay", "runner", "sandbox")
GUEST_ENVIRONMENT = ("torch", "triton", "cuda.bindings")
ALLOWED = {
    "sandbox/guest/*.py": GUEST_ENVIRONMENT,
    "runner/check/programs/*.py": (),
    "ops/judge/*.py": (*GUEST_ENVIRONMENT, "ops.judge", "ops.wire", "ops.blocks"),
    "ops/wire.py": (),
    "ops/blocks.py": GUEST_ENVIRONMENT,
    "ops/*/reference.py": GUEST_ENVIRONMENT,
    "ops/*/templates/*.py": GUEST_ENVIRONMENT,
}
"""Files that run in a container -> what they may import besides the standard library."""
SIBLINGS = "sandbox/guest"
"""Its files lie alone in one folder inside the guest, so there they import one another by their bare names."""
COPIED = ("wire.py", "blocks.py")
"""Text of ops/ that the guest has a copy of."""
BY_NAME = ("import_module", "__import__")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever in the file it stands; a relative import keeps its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def within(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)


def violations(root: Path) -> list[str]:
    """`file:line: name` of each import outside the allow-list."""
    found = []
    for pattern, allowed in ALLOWED.items():
        for path in sorted(root.glob(pattern)):
            beside = tuple(p.stem for p in path.parent.glob("*.py")) if path.parent == root / SIBLINGS else ()
            for line, name in imported(ast.parse(path.read_text())):
                if name.partition(".")[0] not in sys.stdlib_module_names and not within(name, (*allowed, *beside)):
                    found.append(f"{path.relative_to(root)}:{line}: {name}")
    return found


def reached_by_name(root: Path) -> list[str]:
    """Host modules that import torch or triton by a string, which import-linter cannot see."""
    found = []
    for path in sorted(path for name in OURS for path in (root / name).rglob("*.py")):
        if any(path.match(pattern) for pattern in ALLOWED):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            called, name = getattr(node.func, "attr", getattr(node.func, "id", "")), node.args[0].value
            if called in BY_NAME and isinstance(name, str) and within(name, ("torch", "triton")):
                found.append(f"{path.relative_to(root)}:{node.lineno}: {name}")
    return found


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our packages in another folder, where a test may break the rules."""
    for name in OURS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_the_import_contracts_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


def test_code_for_containers_imports_only_what_containers_have() -> None:
    assert violations(ROOT) == []


def test_no_host_module_reaches_torch_by_name() -> None:
    assert reached_by_name(ROOT) == []


@pytest.mark.parametrize("name", COPIED)
def test_both_sides_speak_from_one_text(name: str) -> None:
    assert (ROOT / "sandbox/guest" / name).read_bytes() == (ROOT / "ops" / name).read_bytes()


def test_a_copied_text_needs_nothing_but_what_the_guest_has_too() -> None:
    names = {name for file in COPIED for _, name in imported(ast.parse((ROOT / "ops" / file).read_text()))}
    assert sorted(name for name in names if within(name, OURS)) == []


@pytest.mark.parametrize(
    ("where", "line", "contract"),
    [
        ("eventstore/seeded.py", "import sandbox.api", "imports only point down"),
        ("replay/seeded.py", "from runner import lab", "imports only point down"),
        ("sandbox/seeded.py", "import eventstore.facts", "sandbox and images cannot see the log"),
        ("images/seeded.py", "def f():\n    import eventstore", "sandbox and images cannot see the log"),
        ("runner/seeded.py", "from sandbox.guest import main", "nothing of ours imports the guest"),
        ("sandbox/guest/seeded.py", "import ops.wire", "the guest is standard library"),
        ("runner/seeded.py", "import torch", "host processes never import torch or triton"),
        ("ops/decide/seeded.py", "def f():\n    import triton", "host processes never import torch or triton"),
    ],
)
def test_a_broken_contract_is_reported_by_its_name(copy: Path, where: str, line: str, contract: str) -> None:
    (copy / where).write_text(f'"""Seeded."""\n\n{line}\n')
    done = lint(copy)
    broken = [text for text in done.stdout.splitlines() if "BROKEN" in text]
    assert (done.returncode, any(contract in text for text in broken)) == (1, True), done.stdout


@pytest.mark.parametrize(
    ("where", "line", "name"),
    [
        ("sandbox/guest/seeded.py", "import numpy", "numpy"),
        ("sandbox/guest/seeded.py", "def f():\n    import yaml", "yaml"),
        ("sandbox/guest/seeded.py", "from cuda import cudart", "cuda.cudart"),
        ("ops/judge/seeded.py", "from pydantic import BaseModel", "pydantic.BaseModel"),
        ("ops/judge/seeded.py", "from ops.decide import reasons", "ops.decide.reasons"),
        ("ops/judge/seeded.py", "from . import sibling", "..sibling"),
    ],
)
def test_an_import_that_a_container_lacks_is_found(copy: Path, where: str, line: str, name: str) -> None:
    (copy / where).write_text(f'"""Seeded."""\n\n{line}\n')
    assert [found.rpartition(": ")[2] for found in violations(copy)] == [name]


def test_torch_reached_by_name_from_the_host_is_found(copy: Path) -> None:
    (copy / "runner/seeded.py").write_text('import importlib\n\nTORCH = importlib.import_module("torch.cuda")\n')
    assert reached_by_name(copy) == ["runner/seeded.py:3: torch.cuda"]
