"""`assay sandbox check`: choose rows, run them on one engine, report, and answer with an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from images.host import host_image
from runner import exits, host
from runner.check import on_gpu, report
from runner.check.attempt import Bench, Result
from runner.check.platform import FAULTS, Fault
from runner.check.table import ON_GPU, ROWS, Row
from sandbox.find import find

ANSWERED = frozenset(row.name for row in ON_GPU if row.case in on_gpu.CASES.values())
"""Rows that `--gpu` answers with rows of its own."""


def check(
    engine: str, only: Sequence[str], guest_python: Path | None, *, strict: bool, as_json: bool, gpu: bool = False
) -> int:
    """Run the suite. Code 0 when all is as expected, `exits.DISAGREES` at any difference (with `strict`: or anything not run).

    Raises SandboxUnavailable without an engine, Unavailable where `gpu` is asked for and there is none, UsageError for an unknown
    engine or name.
    """
    if engine not in ("auto", "docker", "bwrap"):
        raise exits.UsageError(f"unknown engine {engine!r}; there is auto, docker, bwrap")
    uuid = on_gpu.the_gpu() if gpu else ""
    rows = [row for row in chosen(only) if not (gpu and row.name in ANSWERED)]
    sandbox = find(engine)  # type: ignore[arg-type]
    bench = Bench(sandbox, host_image(host.guest_python(guest_python), docker=sandbox.name == "docker"))
    began = time.monotonic()
    results: list[Result] = []
    if not as_json:
        _say(report.head())
    for row in rows:
        results.append(bench.attempt(row) if isinstance(row, Row) else bench.provoke(row))
        if not as_json:
            _say(report.line(results[-1]))
    environment: dict[str, Any] = {}
    if gpu:
        answers, environment = on_gpu.attempt(sandbox, bench.image, uuid, lambda text: None)
        results += answers
        if not as_json:
            _say("\n".join(map(report.line, answers)))
    seconds = time.monotonic() - began
    if as_json:
        document = report.document(results, sandbox.describe(), seconds) | ({"gpu": environment} if gpu else {})
        _say(json.dumps(document, indent=2, sort_keys=True))
    else:
        _say(report.summary(results, sandbox.describe(), seconds))
    return code(results, strict=strict)


def chosen(only: Sequence[str]) -> tuple[Row | Fault, ...]:
    """The rows of these names, in the tables' order; all of them without a name. UsageError for an unknown one."""
    every: tuple[Row | Fault, ...] = (*ROWS, *FAULTS)
    names = [row.name for row in every]
    if unknown := sorted(set(only) - set(names)):
        raise exits.UsageError(f"--only: no program {', '.join(unknown)}; see `assay sandbox check --list`")
    return tuple(row for row in every if not only or row.name in only)


def code(results: Sequence[Result], *, strict: bool) -> int:
    """The exit code for these results."""
    number = report.counts(results)
    return exits.DISAGREES if number["NO"] or (strict and number["not run"]) else exits.WINNER


def listing(only: Sequence[str], *, as_json: bool) -> int:
    """Print the rows without running anything."""
    rows = chosen(only)
    if as_json:
        facts = [
            {"name": r.name, "case": r.case, "tries": r.tries, "expected": sorted(r.expected), "needs": r.needs}
            for r in rows
        ]
        _say(json.dumps(facts, indent=2, sort_keys=True))
    else:
        for row in rows:
            _say(f"{row.name:<18}{row.case:<10}{'/'.join(sorted(row.expected)):<24}{row.tries}")
    return exits.WINNER


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
