"""Bundles: identity, freezing, what a guest sees; and every unusable bundle is one line, with nothing executed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import bundle as bundles
from runner.bundle import Bundle, BundleError, Case

KERNEL = b"def add(a, b):\n    return a + b\n"
TASK = b'ENTRY = "add"\n\ndef make_inputs(case, generator, device): ...\n\ndef reference(a, b): ...\n'
CASES = b'[{"case_id": "big", "parameters": {"n": 4, "dims": [[1], 2.5, "x", null, true]}, "weight": 2}, {"case_id": "small"}]'
TARGET = b'{"backend": "cpu", "architecture": "cpu-interpreter"}'
FILES = {"kernel.py": KERNEL, "task.py": TASK, "cases.json": CASES, "target.json": TARGET}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, raw in files.items():
        (path / name).write_bytes(raw)
    return path


def modes(path: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_mode & 0o777 for entry in path.iterdir()}


def test_a_bundle_is_its_files_and_what_they_say(tmp_path: Path) -> None:
    bundle = bundles.load(folder(tmp_path / "b", FILES))
    assert bundle == Bundle(
        files=FILES,
        entry="add",
        cases=(Case("big", {"n": 4, "dims": [[1], 2.5, "x", None, True]}, 2.0, True), Case("small", {}, 1.0, True)),
        target={"backend": "cpu", "architecture": "cpu-interpreter"},
        budget={},
    )
    assert (bundle.weights, bundle.protected) == ({"big": 2.0, "small": 1.0}, frozenset({"big", "small"}))


def test_optional_files_are_part_of_the_bundle_and_others_are_not(tmp_path: Path) -> None:
    more = {"reference_kernel.py": KERNEL, "budget.json": b'{"max_rounds": 3, "min_speedup": 1}'}
    bundle = bundles.load(folder(tmp_path / "b", {**FILES, **more, "README.md": b"hello"}))
    assert (dict(bundle.files), bundle.budget) == ({**FILES, **more}, {"max_rounds": 3, "min_speedup": 1})


def test_the_digest_is_a_fixed_function_of_the_bytes() -> None:
    assert bundles.from_files(FILES).digest == bundles.from_files(dict(reversed(FILES.items()))).digest
    assert bundles.from_files(FILES).digest == "sha256:4156f3a60d95dcd36f0ee313e16e69b0ee657cfe2ba2a78316823fc799f059f7"


@pytest.mark.parametrize("name", FILES)
def test_any_changed_byte_is_another_bundle(name: str) -> None:
    assert bundles.from_files({**FILES, name: FILES[name] + b"\n"}).digest != bundles.from_files(FILES).digest


def test_a_frozen_copy_is_read_only_and_intact(tmp_path: Path) -> None:
    bundle = bundles.from_files(FILES)
    bundles.write(bundle, tmp_path / "frozen")
    assert (tmp_path / "frozen").stat().st_mode & 0o777 == 0o555
    assert modes(tmp_path / "frozen") == dict.fromkeys(FILES, 0o444)
    assert bundles.load(tmp_path / "frozen") == bundle
    assert bundles.check_intact(bundle, tmp_path / "frozen")


def test_a_frozen_copy_never_overwrites(tmp_path: Path) -> None:
    bundles.write(bundles.from_files(FILES), tmp_path / "frozen")
    with pytest.raises(FileExistsError):
        bundles.write(bundles.from_files(FILES), tmp_path / "frozen")


def _append(path: Path) -> None:
    with (path / "task.py").open("ab") as file:
        file.write(b"#")


def _link(path: Path) -> None:
    (path / "kernel.py").rename(path.parent / "kernel.py")
    (path / "kernel.py").symlink_to(path.parent / "kernel.py")


@pytest.mark.parametrize(
    "tamper",
    [
        _append,
        _link,
        lambda path: (path / "task.py").unlink(),
        lambda path: (path / "extra.py").write_bytes(b""),
        lambda path: (path / "extra").mkdir(),
        lambda path: path.rename(path.parent / "elsewhere"),
    ],
    ids=["changed", "linked", "removed", "added", "folder", "gone"],
)
def test_a_touched_copy_is_not_intact(tmp_path: Path, tamper: Callable[[Path], object]) -> None:
    bundle = bundles.from_files(FILES)
    path = folder(tmp_path / "frozen", FILES)
    assert bundles.check_intact(bundle, path)
    tamper(path)
    assert not bundles.check_intact(bundle, path)


def test_a_guest_sees_target_and_public_cases_only(tmp_path: Path) -> None:
    bundles.project(bundles.from_files(FILES), tmp_path / "view")
    assert modes(tmp_path / "view") == {"target.json": 0o444, "cases.json": 0o444}
    assert (tmp_path / "view" / "target.json").read_bytes() == TARGET
    assert json.loads((tmp_path / "view" / "cases.json").read_bytes()) == [
        {"case_id": "big", "parameters": {"n": 4, "dims": [[1], 2.5, "x", None, True]}},
        {"case_id": "small", "parameters": {}},
    ]


def test_a_projection_is_hashed_whole_to_compare_before_and_after(tmp_path: Path) -> None:
    bundles.project(bundles.from_files(FILES), tmp_path / "view")
    before = bundles.hash_folder(tmp_path / "view")
    (tmp_path / "view" / "kernel.py").write_bytes(KERNEL)
    assert set(bundles.hash_folder(tmp_path / "view")) - set(before) == {"kernel.py"}


def test_nothing_in_a_bundle_is_executed(tmp_path: Path) -> None:
    canary = f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    bundles.from_files({**FILES, "kernel.py": KERNEL + canary, "task.py": TASK + canary, "reference_kernel.py": canary})
    assert not (tmp_path / "ran").exists()


def cases(text: str) -> dict[str, bytes]:
    return {"cases.json": text.encode()}


def target(**extra: object) -> dict[str, bytes]:
    return {"target.json": json.dumps({"backend": "cpu", "architecture": "x", **extra}).encode()}


def budget(text: str) -> dict[str, bytes]:
    return {"budget.json": text.encode()}


BAD = [
    ({"harness.py": b""}, "both task.py and harness.py: a bundle has one of the two"),
    ({"notes.txt": b""}, "notes.txt: not a file of a bundle"),
    ({"kernel.py": b"x" * (1 << 20) + b"x"}, "kernel.py: larger than 1048576 bytes"),
    ({"kernel.py": b"def add(:\n"}, "kernel.py: line 1: invalid syntax"),
    ({"kernel.py": b"def add(a): ...\x00"}, "kernel.py: not Python source: source code string cannot contain null"),
    ({"kernel.py": b"# \xff\n"}, "kernel.py: not Python source: 'utf-8' codec can't decode"),
    ({"kernel.py": b"(" * 5000}, "kernel.py: line 1: too many nested parentheses"),
    ({"kernel.py": b"class K:\n    def add(self): ..."}, "kernel.py: defines no top-level `add` (ENTRY of task.py)"),
    ({"reference_kernel.py": b"def f(:"}, "reference_kernel.py: line 1: invalid syntax"),
    ({"task.py": TASK.replace(b"ENTRY", b"NAME")}, "task.py: does not define ENTRY at the top level"),
    ({"task.py": b"ENTRY = 'add'\n"}, "task.py: does not define make_inputs, reference at the top level"),
    ({"task.py": TASK.replace(b'"add"', b"add")}, "task.py: ENTRY must be a string literal that is a function's name"),
    (
        {"task.py": TASK.replace(b'"add"', b'"a b"')},
        "task.py: ENTRY must be a string literal that is a function's name",
    ),
    (cases("[]"), "cases.json: no case"),
    (cases("{}"), "cases.json: Input should be a valid list"),
    (cases("[1]"), "cases.json: 0: Input should be an object"),
    (cases("[{}]"), "cases.json: 0.case_id: Field required"),
    (cases('[{"case_id": ""}]'), "cases.json: 0.case_id: String should have at least 1 character"),
    (cases('[{"case_id": "a"}, {"case_id": "a"}]'), "cases.json: duplicate case_id 'a'"),
    (cases('[{"case_id": "a", "case_id": "b"}]'), "cases.json: not strict JSON: duplicate key 'case_id'"),
    (cases('[{"case_id": "a", "wieght": 1}]'), "cases.json: 0.wieght: unknown key"),
    (cases('[{"case_id": "a", "we\\nird": 1}]'), "cases.json: 0.we ird: unknown key"),
    (cases('[{"case_id": "a", "weight": 0}]'), "cases.json: 0.weight: Input should be greater than 0"),
    (cases('[{"case_id": "a", "weight": -1}]'), "cases.json: 0.weight: Input should be greater than 0"),
    (cases('[{"case_id": "a", "weight": NaN}]'), "cases.json: not strict JSON: not a finite number: NaN"),
    (cases('[{"case_id": "a", "weight": 1e999}]'), "cases.json: not strict JSON: not a finite number: 1e999"),
    (cases('[{"case_id": "a", "weight": true}]'), "cases.json: 0.weight: Input should be a valid number"),
    (cases('[{"case_id": "a", "weight": "1"}]'), "cases.json: 0.weight: Input should be a valid number"),
    (cases('[{"case_id": "a", "protected": "false"}]'), "cases.json: 0.protected: Input should be a valid boolean"),
    (cases('[{"case_id": "a", "protected": 1}]'), "cases.json: 0.protected: Input should be a valid boolean"),
    (cases('[{"case_id": "a", "protected": false}]'), "cases.json: at least one case must be protected"),
    (
        cases('[{"case_id": "a", "parameters": {"x": [{}]}}]'),
        "cases.json: 0.parameters.x: an object is not allowed; scalars and lists are",
    ),
    (
        cases('[{"case_id": "a", "parameters": {"case_id": 1}}]'),
        "cases.json: 0.parameters: `case_id` is reserved: the judge adds it",
    ),
    (cases("[" * 100_000), "cases.json: not strict JSON: nested deeper than 8 levels"),
    ({"cases.json": b"\xff"}, "cases.json: not strict JSON: 'utf-8' codec can't decode"),
    ({"target.json": b'{"backend": "cpu"}'}, "target.json: architecture: Field required"),
    (target(backend=1), "target.json: backend: Input should be a valid string"),
    (target(cores=1), "target.json: cores: unknown key"),
    (target(environment={"A": 1}), "target.json: environment.A: Input should be a valid string"),
    (target(optimization_guidance=["x"]), "target.json: optimization_guidance: Input should be a valid string"),
    (budget('{"max_round": 1}'), "budget.json: max_round: unknown key"),
    (budget('{"max_rounds": 0}'), "budget.json: max_rounds: Input should be greater than 0"),
    (budget('{"candidates_per_round": 1.5}'), "budget.json: candidates_per_round: Input should be a valid integer"),
    (budget('{"max_candidate_seconds": 0}'), "budget.json: max_candidate_seconds: Input should be greater than 0"),
    (budget('{"max_total_seconds": -1}'), "budget.json: max_total_seconds: Input should be greater than 0"),
    (budget('{"min_speedup": 0.99}'), "budget.json: min_speedup: Input should be greater than or equal to 1"),
    (budget('{"max_cv": -0.1}'), "budget.json: max_cv: Input should be greater than or equal to 0"),
    (budget('{"benchmark_repetitions": 0}'), "budget.json: benchmark_repetitions: Input should be greater than 0"),
    (budget('{"max_cv": Infinity}'), "budget.json: not strict JSON: not a finite number: Infinity"),
]


@pytest.mark.parametrize(("change", "line"), BAD)
def test_an_unusable_bundle_is_one_line(change: dict[str, bytes], line: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundles.from_files({**FILES, **change})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundles.from_files({other: raw for other, raw in FILES.items() if other != name})
    assert str(caught.value) == f"missing {name}"


def test_a_harness_bundle_is_known_and_refused(tmp_path: Path) -> None:
    files = {"harness.py" if name == "task.py" else name: raw for name, raw in FILES.items()}
    with pytest.raises(BundleError) as caught:
        bundles.load(folder(tmp_path / "b", files))
    assert str(caught.value) == (
        f"{tmp_path / 'b'}: harness.py: bundles of grade `shared` are not supported yet; give the split contract, task.py"
    )


def test_a_path_that_is_no_folder_of_files_is_one_line(tmp_path: Path) -> None:
    path = folder(tmp_path / "b", FILES)
    lines = []
    for spoil in (
        lambda: None,
        _replace(path, "task.py", os.mkfifo),
        _replace(path, "task.py", _dangle),
        _replace(path, "task.py", os.mkdir),
    ):
        spoil()
        for place in (path, tmp_path / "none", path / "kernel.py"):
            try:
                lines.append(bundles.load(place).entry)
            except BundleError as error:
                lines.append(str(error).replace(str(tmp_path), ""))
    assert lines == [
        "add",
        "/none: no such directory",
        "/b/kernel.py: a bundle is a directory",
        "/b: task.py: not a regular file",
        "/none: no such directory",
        "/b/kernel.py: a bundle is a directory",
        "/b: task.py: not a regular file (Too many levels of symbolic links)",
        "/none: no such directory",
        "/b/kernel.py: a bundle is a directory",
        "/b: task.py: not a regular file",
        "/none: no such directory",
        "/b/kernel.py: a bundle is a directory",
    ]


def _replace(path: Path, name: str, make: Callable[[Path], object]) -> Callable[[], None]:
    def spoil() -> None:
        (path / name).unlink()
        make(path / name)

    return spoil


def _dangle(path: Path) -> None:
    path.symlink_to("kernel.py")
