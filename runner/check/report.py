"""The suite's report: a table for people, one JSON document for machines; both say what was not run, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from runner.check.attempt import Result

VERDICTS = ("ok", "NO", "not run")


def counts(results: Iterable[Result]) -> dict[str, int]:
    """How many of each verdict."""
    found: Counter[str] = Counter(result.verdict for result in results)
    return {verdict: found[verdict] for verdict in VERDICTS}


def line(result: Result) -> str:
    """One row: verdict, name, expected, observed, then the evidence or what is wrong."""
    expected = "/".join(result.expected)
    head = f"{result.verdict:<8}{result.name:<18}{expected:<24}{result.observed or '-':<18}"
    tail = "; ".join(result.problems) if result.verdict != "ok" else result.evidence
    return f"{head}{' '.join(tail.split())}".rstrip()


def head() -> str:
    return f"{'':<8}{'program':<18}{'expected':<24}{'observed':<18}evidence"


def summary(results: Sequence[Result], engine: Mapping[str, str], seconds: float) -> str:
    """The last line."""
    number = counts(results)
    said = ", ".join(f"{number[verdict]} {verdict}" for verdict in VERDICTS)
    return f"{said}; {engine['engine']} {engine['version']}, {seconds:.0f} s"


def document(results: Sequence[Result], engine: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """`{"engine", "seconds", "counts", "rows"}`, of JSON's own types."""
    return {
        "engine": dict(engine),
        "seconds": round(seconds, 1),
        "counts": counts(results),
        "rows": [asdict(result) for result in results],
    }
