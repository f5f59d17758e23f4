"""What is read from files that others wrote is strict: refused in one line, or safe to hand to log, judge and guest."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import wire
from runner import documents

ROOT = Path(__file__).resolve().parent.parent
OURS = ("eventstore", "images", "ops", "replay", "runner", "sandbox")
READERS = ("open", "read_text", "read_bytes", "fdopen")
PARSERS = ("json", "pickle", "marshal")
READS: dict[str, tuple[set[str], str]] = {
    "eventstore/blobs.py": ({"open", "read_bytes"}, "blobs by their digest, checked; a foreign file follows no link"),
    "eventstore/files.py": ({"open"}, "a directory of the log, to sync it"),
    "eventstore/lock.py": ({"open"}, "the log's lock file"),
    "eventstore/verify.py": ({"json.loads", "open"}, "the log itself: what is wrong with it is its finding"),
    "images/base.py": ({"read_text"}, "the base image as we unpacked it"),
    "images/contents.py": ({"open"}, "an image's layers, from the engine"),
    "images/cpu.py": (
        {"json.loads", "open", "read_bytes", "read_text"},
        "its own record and lock; wheels; what an image says before any guest ran",
    ),
    "images/examine.py": ({"json.loads", "read_bytes"}, "an image's own files, before any guest ran"),
    "images/host.py": (
        {"json.loads", "open", "read_bytes", "read_text"},
        "the guest environment as it is installed here",
    ),
    "images/lock.py": ({"json.loads", "read_bytes", "read_text"}, "lock files that we ship; the installer's report"),
    "images/steps.py": ({"open"}, "wheels, hashed"),
    "ops/contract.py": ({"read_text"}, "a contract that we ship"),
    "ops/decide/__init__.py": ({"read_bytes"}, "our own sources, hashed"),
    "ops/judge/main.py": ({"json.load", "open"}, "cases.json of a frozen bundle, which the host read strictly"),
    "ops/judge/specs.py": ({"json.load", "open"}, "cases.json of a frozen bundle, which the host read strictly"),
    "ops/registry.py": ({"json.loads", "read_bytes", "read_text"}, "templates and references that we ship"),
    "ops/wire.py": ({"json.loads"}, "the strict reader"),
    "runner/bundle.py": ({"fdopen", "open"}, "a bundle as its author wrote it: no link, no pipe, bounded"),
    "runner/check/stage.py": ({"read_bytes"}, "folders of the check's own, compared before and after"),
    "runner/check/watch.py": ({"read_bytes"}, "the kernel"),
    "runner/cli.py": ({"open"}, "/dev/null"),
    "runner/cli_read.py": ({"json.loads"}, "payloads of our log"),
    "runner/episode.py": ({"open"}, "an episode's lock file"),
    "runner/host.py": ({"open"}, "our own pyproject.toml"),
    "runner/providers.py": ({"open", "read_bytes"}, "the user's own sources: bytes that only a guest runs"),
    "runner/warm.py": ({"read_bytes"}, "our own sources, hashed"),
    "runner/workspace.py": ({"fdopen"}, "writes a source"),
    "sandbox/bwrap.py": ({"json.loads"}, "bubblewrap's own status, on a descriptor that no guest has"),
    "sandbox/canary.py": (
        {"json.loads", "read_bytes", "read_text"},
        "our own program's report, before the job starts, bounded; the kernel; our own source, hashed",
    ),
    "sandbox/cgroups.py": ({"open", "read_text"}, "the kernel"),
    "sandbox/collect.py": ({"open"}, "the reader of folders that a guest could write to"),
    "sandbox/docker.py": ({"read_text"}, "the kernel: /proc of a pid that the engine named"),
    "sandbox/gpu.py": ({"read_text"}, "the kernel: the driver's /proc files"),
    "sandbox/gpueyes.py": ({"json.loads"}, "our own known kernel's word, in a container without a candidate"),
    "sandbox/gpulock.py": ({"open"}, "a GPU's lock file"),
    "sandbox/gpurecords.py": ({"json.loads", "open", "read_text"}, "the host's own records of ill GPUs"),
    "sandbox/guest/build.py": ({"json.load", "open"}, "inside the guest: its own source, the host's plan"),
    "sandbox/guest/canary.py": ({"open"}, "inside the container, before the job: the kernel"),
    "sandbox/guest/trial.py": ({"json.loads", "open"}, "inside the guest"),
    "sandbox/guest/wire.py": ({"json.loads"}, "the strict reader's copy for guests"),
    "sandbox/host.py": ({"read_text"}, "the kernel"),
    "sandbox/seccomp.py": ({"fdopen"}, "writes a filter"),
    "sandbox/xid.py": ({"open"}, "the kernel's log"),
}
"""File -> what it reads with, and whose words it reads."""
DEEPEST = documents.BOUNDS.depth - 3
"""Lists in a parameter: the document, the case and its parameters are three levels already."""


def case(value: bytes) -> bytes:
    return b'[{"case_id": "a", "parameters": {"n": ' + value + b"}}]"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"9007199254740992", "integer of 2^53 or more: 9007199254740992"),
        (b"-9007199254740992", "integer of 2^53 or more"),
        (b"1" * 4000, "integer of 2^53 or more: 11111111111111111111"),
        (b'"\\udcff"', "a lone surrogate is no text"),
        (b'"\\UDCFF"', "not strict JSON"),
        (b'1, "\\udcff": 1', "a lone surrogate is no text"),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested deeper than 8 levels"),
        (b"[" * 500 + b"]" * 500, "nested deeper than 8 levels"),
        (b"[" * 100_000, "nested deeper than 8 levels"),
        (b"1e999", "not a finite number"),
        (b"NaN", "not a finite number"),
        (b'1, "n": 2', "duplicate key 'n'"),
        (b'"\xff"', "not strict JSON"),
    ],
)
def test_a_bundles_document_that_the_guest_could_not_be_told_is_refused_in_one_short_line(
    value: bytes, why: str
) -> None:
    with pytest.raises(documents.DocumentError) as refused:
        documents.cases(case(value))
    said = str(refused.value)
    assert why in said
    assert said.startswith("cases.json: ")
    assert len(said) < 200
    assert said.isprintable()


def test_the_largest_integer_the_deepest_list_and_whole_characters_are_read() -> None:
    for value in (b"9007199254740991", b"-9007199254740991", b"[" * DEEPEST + b"]" * DEEPEST, b'"\\ud83d\\ude00"'):
        assert documents.cases(case(value))[0]["parameters"]["n"] == json.loads(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=10,
    )
)
def test_a_parameter_that_is_accepted_reaches_a_guest_as_it_was_written(value: object) -> None:
    try:
        document = documents.cases(case(json.dumps(value).encode()))
    except documents.DocumentError:
        return
    order = {"case": document[0]["parameters"]}
    assert wire.decode(wire.encode(order)) == order


def calls(source: str) -> set[str]:
    """Names of the reading calls in a source: what opens a file or parses a document, however it is reached.

    The kernel's own files (a literal /proc path) and openings of other things (`Log.open(home)`) are not meant.
    """
    found = set()
    tree = ast.parse(source)
    kernels = {
        id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and "/proc/" in ast.unparse(node)[:40]
    }
    opens = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and not _has_mode(node)}
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        owner = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
        foreign = isinstance(node, ast.Attribute) and name == "open" and owner not in ("os", "io") and id(node) in opens
        if name in READERS and id(node) not in kernels and not foreign:
            found.add(name)
        if name in ("load", "loads") and owner in PARSERS:
            found.add(f"{owner}.{name}")
        if isinstance(node, ast.ImportFrom) and node.module in PARSERS:
            found.add(f"from {node.module}")
    return found


def _has_mode(call: ast.Call) -> bool:
    """Whether the first argument is a mode such as "rb", or absent: then it may be a path that is opened."""
    first = call.args[0] if call.args else None
    mode = isinstance(first, ast.Constant) and isinstance(first.value, str) and set(first.value) <= set("rwaxbt+")
    return first is None or mode


def test_files_and_json_are_read_in_known_places_only() -> None:
    """A new reader of what guests or users wrote belongs behind `wire.read_json` and `sandbox.collect`. One of anything else gets
    a line in `READS`, which says whose words it reads."""
    found = {
        str(path.relative_to(ROOT)): read
        for package in OURS
        for path in sorted((ROOT / package).rglob("*.py"))
        if not {"templates", "programs"} & set(path.parts) and (read := calls(path.read_text()))
    }
    strange = {name: read - READS.get(name, (set(), ""))[0] for name, read in found.items()}
    assert {name: read for name, read in strange.items() if read} == {}


def test_a_reader_is_seen_however_it_is_called() -> None:
    for source in ("open(p)", "io.open(p)", "os.open(p, 0)", "p.open()", "p.read_text()", "map(P.read_bytes, ps)"):
        assert len(calls(source)) == 1, source
    for source in ("json.loads(x)", "json.load(f)", "from json import loads", "map(json.loads, xs)", "pickle.load(f)"):
        assert len(calls(source)) == 1, source
    for source in ("Log.open(home)", "json.dumps(x)", "def open(): pass", 'Path(f"/proc/{pid}/stat").read_text()'):
        assert calls(source) == set(), source
