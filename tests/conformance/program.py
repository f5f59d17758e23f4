"""The program as its user runs it: a child process, JSON on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def assay(*arguments: str) -> dict[str, Any]:
    """stdout of the program, parsed; a run that prints nothing fails the test with its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=1800
    )
    assert done.stdout, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def episode(
    folder: Path, bundle: Mapping[str, bytes], sources: Mapping[str, str], engine: str, *options: str
) -> dict[str, Any]:
    """Run the sources, in order, as candidates of one episode on the CPU.

    Returns candidate name -> what the log says of it, and under "" the result, under "replay" what a replay says.
    """
    place, mock, home = folder / "bundle", folder / "mock", folder / "home"
    place.mkdir()
    mock.mkdir()
    for name, raw in bundle.items():
        (place / name).write_bytes(raw)
    for index, (name, source) in enumerate(sources.items()):
        (mock / f"{index:02d}-{name}.py").write_text(source)
    result = assay(
        *("run", str(place), "--provider", "mock", "--mock-dir", str(mock), "--home", str(home), "--device", "cpu"),
        *("--engine", engine, "--max-candidates", str(len(sources)), *options),
    )
    shown = assay("show", result["episode"], "--json", "--home", str(home))
    replayed = assay("replay", result["episode"], "--json", "--home", str(home))
    by_id = {candidate["candidate"]: candidate for candidate in shown["candidates"]}
    named = {name: by_id[f"c{index:03d}"] for index, name in enumerate(sources, 1)}
    return {"": result, "replay": replayed, **named}
