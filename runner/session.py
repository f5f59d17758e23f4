"""One run of the program on one episode: begin it, or take it up again where its log ends.

Everything is checked before the first append, so that bad input leaves no episode behind. After it, only what
`episode.started` recorded counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eventstore.errors import StoreError
from eventstore.events import Event
from eventstore.facts import EpisodeResumed, EpisodeStarted
from eventstore.log import Log
from ops import registry
from ops.decide import code_digest
from replay.fold import State, fold
from runner import command, episode, pipeline, providers
from runner.bundle import Bundle, from_files
from runner.context import Context, worked_s
from runner.exits import INTERRUPTED, RunnerError, Unavailable
from runner.machine import Machine, same
from runner.providers import Point, Provider
from runner.settings import Settings

Watch = Callable[[Event], None]


class Interrupted(RunnerError):
    """The user stopped the run; the episode goes on from its log whenever asked to."""

    code = INTERRUPTED

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(f"interrupted; go on with: assay resume {name} --home {shlex.quote(str(home))}")


@dataclass(frozen=True)
class Opening:
    """An episode that can begin: all that was asked for, checked."""

    label: str
    """First part of the episode's name."""
    bundle: Bundle
    settings: Settings
    machine: Machine
    provider: Provider
    operator: str | None = None
    dtype: str | None = None
    shape: dict[str, int] = field(default_factory=dict)
    live_kernel: str | None = None
    name: str = ""
    """Of the episode; empty: a fresh one is made from the label."""

    def event(self) -> EpisodeStarted:
        return EpisodeStarted(
            bundle=self.bundle.digest,
            manifest=self.bundle.manifest,
            operator=self.operator,
            dtype=self.dtype,
            shape=self.shape,
            device=self.machine.device,
            device_label=self.machine.label,
            engine=self.machine.engine,
            settings=self.settings.record(),
            environment=self.machine.environment(),
            decision_code=code_digest(),
            live_kernel=self.live_kernel,
        )


def begin(home: Path, opening: Opening, watch: Watch) -> State:
    """Run a new episode to its end, and write its artifacts."""
    event = opening.event()
    with Log.open(home) as log:
        name = episode.check_id(opening.name or episode.new_id(opening.label))
        with episode.locked(log.home, name), _resumable(name, log.home), _nothing_left(log, name):
            ctx = Context(
                log, name, opening.bundle, opening.settings, opening.machine.lab, opening.provider, event, watch
            )
            return _work(ctx, State(name))


def resume(home: Path, name: str, guest_python: Path | None, watch: Watch) -> State:
    """Take an episode up where its log ends. One that is done gets its artifacts again, and no further event."""
    with (
        Log.open(home, create=False) as log,
        episode.locked(log.home, episode.known(log, name)),
        _resumable(name, log.home),
    ):
        events = list(log.read(name))
        state = fold(name, events)
        if state.stage == "done":
            episode.write_artifacts(log, state, log.home)
            return state
        return _work(*_taken_up(log, state, worked_s(events), guest_python, watch))


def _taken_up(log: Log, state: State, worked: float, guest_python: Path | None, watch: Watch) -> tuple[Context, State]:
    """The recorded bundle, settings, provider and machine, found again; and the event that says so."""
    started = state.started
    assert started is not None
    bundle = from_files({file: log.blobs.get(digest) for file, digest in started.manifest.items()})
    settings = Settings.of(started.settings)
    provider = provider_of(settings, bundle, started.operator, started.device)
    found = same(started, guest_python, log.home)
    ctx = Context(log, state.episode, bundle, settings, found.lab, provider, None, watch, worked_s=worked)
    resumed = EpisodeResumed(environment={**found.environment(), "decision_code": code_digest()})
    return ctx, ctx.append(state, [resumed])


def provider_of(settings: Settings, bundle: Bundle, operator: str | None, device: str) -> Provider:
    """Who proposes, by the recorded settings alone. Raises UsageError, or Unavailable when the search space changed."""
    if settings.strategy == "command":
        return command.command(settings.command, settings.provider_timeout_s)
    if settings.strategy == "mock":
        return providers.mock(Path(settings.mock_dir) if settings.mock_dir else None)
    if settings.strategy == "file":
        return providers.one_file(Path(settings.file or ""))
    if operator is None:
        raise ValueError(f"strategy {settings.strategy} needs an operator")
    chosen = registry.get(operator)
    points = space(operator, device, bundle.kernel)
    if settings.space != space_digest(operator, points):
        raise Unavailable(f"operator {operator} changed since the episode began; begin a new one")
    if settings.strategy == "grid":
        return providers.grid(points, chosen.render)
    return providers.best_of_n(points, chosen.render, settings.max_candidates, settings.seed)


def space(operator: str, device: str, baseline: bytes) -> list[Point]:
    """The operator's search space in its order, without the baseline's own place."""
    chosen = registry.get(operator)
    points = [Point(knobs.template, dict(knobs.knobs)) for knobs in chosen.space(device)]
    return [point for point in points if chosen.render(point.template, point.knobs) != baseline]


def space_digest(operator: str, points: list[Point]) -> str:
    """`sha256:<hex>` over every source of the space."""
    digest = hashlib.sha256()
    for point in points:
        source = registry.get(operator).render(point.template, point.knobs)
        digest.update(len(source).to_bytes(8, "big") + source)
    return "sha256:" + digest.hexdigest()


def _work(ctx: Context, state: State) -> State:
    with contextlib.closing(ctx.lab):
        state = pipeline.run(ctx, state)
    episode.write_artifacts(ctx.log, state, ctx.log.home)
    return state


@contextlib.contextmanager
def _resumable(name: str, home: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(name, home) from None


@contextlib.contextmanager
def _nothing_left(log: Log, name: str) -> Iterator[None]:
    """When not even the first event was stored, the episode's folder goes too."""
    try:
        yield
    except StoreError:
        with contextlib.suppress(StoreError):
            if name not in log.streams():
                episode.forget(log.home, name)
        raise
