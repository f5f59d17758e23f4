"""A laboratory bench for the runner's tests: a small bundle, the public fake lab, and one call that plays an episode."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eventstore.events import Event
from eventstore.facts import EpisodeStarted
from eventstore.log import Log
from ops.decide import code_digest
from replay.fold import State, fold
from runner import pipeline, session
from runner.bundle import Bundle, from_files
from runner.context import Context
from runner.fake import FakeLab, source
from runner.machine import Machine
from runner.providers import Proposal, Provider, Question
from runner.settings import Settings, resolve

TASK = b'ENTRY = "run"\n\n\ndef make_inputs(case, generator, device):\n    return ()\n\n\ndef reference(*inputs):\n    return ()\n'


def bundle(us: float = 100.0, **files: object) -> Bundle:
    """A fake-able bundle with one protected and one unprotected case; extra files as JSON."""
    cases = [{"case_id": "main"}, {"case_id": "odd", "weight": 0.01, "protected": False}]
    documents = {"cases.json": cases, "target.json": {"backend": "cpu", "architecture": "host"}}
    documents |= {name.replace("_json", ".json"): body for name, body in files.items()}
    return from_files(
        {"kernel.py": source(us), "task.py": TASK, **{name: json.dumps(d).encode() for name, d in documents.items()}}
    )


@dataclass(frozen=True)
class Listed:
    """Proposes the given sources in order; an exception in the list is raised."""

    sources: Sequence[bytes | Exception]
    name: str = "mock"

    def propose(self, question: Question) -> Proposal | None:
        if question.index > len(self.sources):
            return None
        found = self.sources[question.index - 1]
        if isinstance(found, Exception):
            raise found
        return Proposal(found, {"change": f"number {question.index}"})


def opening(contract: Bundle, settings: Settings) -> EpisodeStarted:
    return EpisodeStarted(
        bundle=contract.digest,
        manifest=contract.manifest,
        device="cpu",
        device_label="cpu-interpreter",
        engine="fake",
        settings=settings.record(),
        environment={"fake": True},
        decision_code=code_digest(),
    )


def play(
    home: Path,
    provider: Provider | Sequence[bytes | Exception],
    lab: FakeLab | None = None,
    *,
    watch: Callable[[Event], None] = lambda event: None,
    contract: Bundle | None = None,
    episode: str = "story-1",
    **flags: object,
) -> State:
    """Begin the episode, or go on with it, and work until it is done."""
    contract = contract or bundle()
    if isinstance(provider, Sequence):
        provider = Listed(provider)
    settings = resolve(contract, {"max_candidates": 8, **flags}, strategy="mock")
    with Log.open(home) as log:
        ctx = Context(
            log, episode, contract, settings, lab or FakeLab(), provider, opening(contract, settings), watch=watch
        )
        return pipeline.run(ctx, fold(episode, log.read(episode)))


def kinds(home: Path, episode: str = "story-1") -> list[str]:
    with Log.open(home, read_only=True) as log:
        return [event.kind for event in log.read(episode)]


def plain(state: State) -> State:
    """A state without what may differ between two runs of the same story: unit names, secrets, versions."""

    def calm(pairs):  # type: ignore[no-untyped-def]
        return tuple(pair.model_copy(update={"unit": "", "secret": ""}) for pair in pairs)

    return replace(
        state,
        version=0,
        position=0,
        resumed=0,
        aa_pairs=calm(state.aa_pairs),
        candidates={name: replace(one, pairs=calm(one.pairs)) for name, one in state.candidates.items()},
        finalist_pairs={name: calm(pairs) for name, pairs in state.finalist_pairs.items()},
    )


class Notebook(FakeLab):
    """A fake lab that writes down on disk what it was asked, so that a killed process still tells."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.page = page

    def _ask(self, what: str) -> None:
        with open(self.page, "a") as file:
            file.write(what + "\n")
        super()._ask(what)


def fake_machine(lab: FakeLab) -> Machine:
    return Machine(lab, "fake", "cpu", "cpu-interpreter")


def write_sources(folder: Path, sources: Sequence[bytes]) -> Path:
    folder.mkdir(parents=True)
    for index, text in enumerate(sources):
        (folder / f"{index:02d}.py").write_bytes(text)
    return folder


def begin(
    home: Path, mock_dir: Path, lab: FakeLab, watch: Callable[[Event], None] = lambda event: None, **flags: object
) -> State:
    """Begin an episode as the command line does, on the given lab."""
    contract = bundle()
    settings = resolve(contract, {"max_candidates": 8, "mock_dir": str(mock_dir), **flags}, strategy="mock")
    provider = session.provider_of(settings, contract, None, "cpu")
    opening = session.Opening("story", contract, settings, fake_machine(lab), provider, name="story-1")
    return session.begin(home, opening, watch)


def begin_and_die_at(home: Path, mock_dir: Path, page: Path, version: int) -> None:
    """Begin an episode in this process, and kill it without a warning right after that version was stored."""

    def watch(event: Event) -> None:
        if event.version == version:
            os.kill(os.getpid(), signal.SIGKILL)

    begin(home, mock_dir, Notebook(page), watch)


def begin_and_die_in(home: Path, mock_dir: Path, page: Path, call: int) -> None:
    """Begin an episode in this process, and kill it when the lab is asked for the so-many-th time."""

    class Deadly(Notebook):
        def _ask(self, what: str) -> None:
            super()._ask(what)
            if len(self.asked) == call:
                os.kill(os.getpid(), signal.SIGKILL)

    begin(home, mock_dir, Deadly(page))
