"""The fuzzers themselves: quiet on the readers as they are, loud on a reader that is broken, and never outside their folder."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops import wire
from sandbox import collect

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"scripts.{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz, targets = script("fuzz"), script("fuzz_targets")


def feed(target: str, inputs: int) -> None:
    rng = random.Random(7)
    for _ in range(inputs):
        targets.TARGETS[target](fuzz.mutate(rng, targets.SEEDS[target]))


def snapshot(folder: Path) -> list[tuple[str, int, bytes]]:
    return sorted((str(p), p.lstat().st_ino, p.read_bytes() if p.is_file() else b"") for p in folder.rglob("*"))


@pytest.mark.parametrize(("target", "inputs"), [("json", 1500), ("frames", 800), ("folder", 150)])
def test_the_readers_stand_some_hundred_inputs(
    target: str, inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets.tempfile, "tempdir", str(tmp_path / "inner"))
    (tmp_path / "inner").mkdir()
    (tmp_path / "beside").write_bytes(b"beside")
    before = snapshot(tmp_path)
    feed(target, inputs)
    assert snapshot(tmp_path) == before


BROKEN: dict[str, tuple[str, object, str, Callable[..., object]]] = {
    "no bound on depth": ("json", wire, "_bound_depth", lambda raw, limit: None),
    "no bound on contents": ("json", wire, "_bound_contents", lambda document, bounds: None),
    "duplicate keys": ("json", wire, "_unique", dict),
    "large integers": ("json", wire, "_exact", int),
    "infinities": ("json", wire, "_finite", float),
    "no bound on a file": ("folder", collect, "_bounded", lambda fd, path, most: b""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reader_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, module, attribute, instead = BROKEN[name]
    monkeypatch.setattr(module, attribute, instead)
    with pytest.raises((targets.Finding, ValueError)):
        feed(target, 4000)


def test_a_message_whose_descriptors_are_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = wire.receive
    monkeypatch.setattr(wire, "receive", lambda sock, max_fds: receive(sock, 3))
    with pytest.raises(targets.Finding, match="descriptors that nobody allowed"):
        feed("frames", 4000)
