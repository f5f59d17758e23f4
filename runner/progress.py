"""What a user sees while an episode runs: the live log on stderr, and on a terminal a bar below it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from eventstore.events import Event
from eventstore.facts import EpisodeStarted
from replay import livelog

PROPOSALS = ("candidate.proposed", "proposal.failed")


def lines(event: Event) -> list[str]:
    """The live log's lines of one event; the first event also tells the episode's name."""
    name = [livelog.line("episode", {"name": event.stream})] if event.version == 1 else []
    return name + livelog.lines(event)


@contextmanager
def shown() -> Iterator[Callable[[Event], None]]:
    """Yields what is to be called with each event. The bar exists only where stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def watch(event: Event) -> None:
            for line in lines(event):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            if event.kind == "episode.started" and isinstance(event.fact, EpisodeStarted):
                bar.update(task, total=event.fact.settings["max_candidates"])
            bar.update(task, description=event.kind, advance=int(event.kind in PROPOSALS))

        yield watch


def _plain(event: Event) -> None:
    for line in lines(event):
        sys.stderr.write(line + "\n")
    sys.stderr.flush()
