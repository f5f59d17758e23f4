"""Who proposes candidates: one interface, five sources of sources.

    grid, best_of_n   the knobs of a registered operator's search space, in order or in a seeded sample
    command           any program of the user's: a question as JSON on stdin, a candidate as JSON on stdout (command.py)
    file              the one file that `assay judge` was given
    mock              files of a directory, for tests and demonstrations; without one, it echoes the baseline

A provider is asked for proposal number n, counted from 1, together with all that happened so far. It keeps no state of
its own between proposals, so that a resumed run asks exactly what the killed one would have asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runner import customs
from runner.bundle import Bundle
from runner.exits import UsageError


@dataclass(frozen=True)
class Past:
    """What became of an earlier proposal; what the next one may learn from."""

    candidate: str
    """Its id, or `proposal 3` where no candidate came of it."""
    verdict: str
    """`promoted`, `rejected`, `ambiguous` or `failed`."""
    reason: str
    detail: str = ""
    story: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What a provider is told. Of the frozen bundle only the public part: never the task, its reference or a seed."""

    index: int
    """Which proposal is asked for, from 1."""
    bundle: Bundle
    best: bytes
    """Source of the incumbent; the baseline's before any promotion."""
    best_name: str
    history: tuple[Past, ...]
    baseline_us: dict[str, float] = field(default_factory=dict)
    """Per case, the calibrated median of the baseline."""


@dataclass(frozen=True)
class Proposal:
    """A complete kernel source and what its proposer says about it."""

    source: bytes
    story: dict[str, str] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    prompt: bytes | None = None
    reply: bytes | None = None


class ProposalError(Exception):
    """This proposal came to nothing. The provider's failure: it costs one proposal of the budget, and is recorded."""

    def __init__(self, reason: str, detail: str, prompt: bytes | None = None, reply: bytes | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.prompt = prompt
        self.reply = reply


class Provider(Protocol):
    """Proposes candidates."""

    @property
    def name(self) -> str:
        """For the record of each proposal."""

    def propose(self, question: Question) -> Proposal | None:
        """The proposal number `question.index`, or None when there is nothing left to propose. Raises ProposalError."""


@dataclass(frozen=True)
class Point:
    """One place of a search space."""

    template: str
    knobs: dict[str, Any]

    @property
    def label(self) -> dict[str, Any]:
        return {"template": self.template, **self.knobs}


@dataclass(frozen=True)
class Points:
    """Proposes the points of a search space one after the other; behind both `grid` and `best_of_n`."""

    name: str
    points: Sequence[Point]
    render: Callable[[str, dict[str, Any]], bytes]

    def propose(self, question: Question) -> Proposal | None:
        if question.index > len(self.points):
            return None
        point = self.points[question.index - 1]
        knobs = " ".join(f"{name}={value}" for name, value in point.label.items())
        return Proposal(self.render(point.template, point.knobs), {"change": f"knobs {knobs}"}, point.label)


def grid(points: Sequence[Point], render: Callable[[str, dict[str, Any]], bytes]) -> Points:
    """Every point, in the operator's order."""
    return Points("grid", points, render)


def best_of_n(points: Sequence[Point], render: Callable[[str, dict[str, Any]], bytes], n: int, seed: int) -> Points:
    """A seeded sample of `n` points, without replacement; all of them, shuffled, where there are fewer."""
    return Points("best_of_n", random.Random(seed).sample(list(points), min(n, len(points))), render)


@dataclass(frozen=True)
class Mock:
    """Sources from a directory in the order of their names. Without a directory: the baseline, again and again."""

    folder: Path | None = None
    name: str = "mock"

    def propose(self, question: Question) -> Proposal | None:
        if self.folder is None:
            return Proposal(question.bundle.kernel, {"change": "none: an echo of the baseline"})
        files = sorted(self.folder.glob("*.py"))
        if question.index > len(files):
            return None
        file = files[question.index - 1]
        return Proposal(file.read_bytes(), {"change": f"file {file.name}"})


def mock(folder: Path | None) -> Mock:
    """Checks the folder before a run begins."""
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--mock-dir {folder}: no such directory")
    if folder is not None and not any(folder.glob("*.py")):
        raise UsageError(f"--mock-dir {folder}: no *.py file in it")
    return Mock(folder)


@dataclass(frozen=True)
class OneFile:
    """Proposes one file, once."""

    path: Path
    source: bytes
    """As it was when the run began: what happens to the file meanwhile changes nothing."""
    problem: str = ""
    name: str = "file"

    def propose(self, question: Question) -> Proposal | None:
        if question.index > 1:
            return None
        if self.problem:
            raise ProposalError("provider-error", self.problem)
        return Proposal(self.source, {"change": f"file {self.path.name}"})


def one_file(path: Path) -> OneFile:
    """Reads the file, now. One that is gone is no error yet: a resumed run has its proposal in the log already."""
    try:
        with path.open("rb") as file:
            return OneFile(path, file.read(customs.MAX_SOURCE_BYTES + 1))
    except OSError as error:
        return OneFile(path, b"", f"{path}: {error.strerror}")
