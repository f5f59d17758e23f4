"""What every step of an episode works with, and the one place where the runner appends to the log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from eventstore.events import Event
from eventstore.facts import EpisodeResumed, EpisodeStarted, Fact
from eventstore.log import Log
from replay.fold import State, step
from runner.bundle import Bundle
from runner.lab import Lab
from runner.providers import Provider
from runner.settings import Settings


def _silent(event: Event) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Context:
    """One runner at work on one episode."""

    log: Log
    episode: str
    bundle: Bundle
    settings: Settings
    lab: Lab
    provider: Provider
    opening: EpisodeStarted | None = None
    """The first event, where this runner begins the episode."""
    watch: Callable[[Event], None] = _silent
    """Called with each event right after it was stored: the live log, a progress bar."""
    worked_s: float = 0.0
    """Working time of earlier runners on this episode."""
    began: float = field(default_factory=time.monotonic)

    def append(self, state: State, facts: Sequence[Fact]) -> State:
        """Store a step's facts at exactly the version they were decided on. Conflict when somebody else was faster."""
        for event in self.log.append(self.episode, facts, expected=state.version):
            state = replace(step(state, event.fact), position=event.position)
            self.watch(event)
        return state

    def spent_s(self) -> float:
        """Working time of the episode so far, seconds."""
        return self.worked_s + time.monotonic() - self.began

    def unit(self, state: State, label: str) -> str:
        """Name of a measurement unit or build: never used before, because every attempt leaves an event behind it."""
        return f"{self.episode}-{label}-v{state.version}"

    def order_seed(self, unit: str) -> int:
        """Derived from the recorded seed and the unit's name alone, so that a replay derives it again."""
        return order_seed(self.settings.seed, unit)


def order_seed(seed: int, unit: str) -> int:
    """SHA-256 of seed and unit, 48 bits of it."""
    return int.from_bytes(hashlib.sha256(f"order:{seed}:{unit}".encode()).digest()[:6], "big")


def worked_s(events: Iterable[Event]) -> float:
    """Working time that a log tells of: the time between events, but not the pauses before a resumption."""
    total, last = 0, None
    for event in events:
        if last is not None and event.kind != EpisodeResumed.model_fields["kind"].default:
            total += max(0, event.at_ns - last)
        last = event.at_ns
    return total / 1e9
