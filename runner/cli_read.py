"""The commands that read back: the log, an episode, the board, a replay. They run no candidate and add no event."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore.events import Event
from eventstore.log import Log
from eventstore.verify import verify
from replay import catalogue, livelog, rederive
from replay import show as account
from replay.fold import fold, fold_all
from replay.leaderboard import leaderboard as board
from replay.leaderboard import named
from replay.views import FILE, rebuild
from runner import columns, episode, exits, host, progress
from runner.options import Home, Json, Name

log_app = typer.Typer(help="The append-only log.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Hang the commands into the program."""
    app.add_typer(log_app, name="log")
    for command in (episodes, leaderboard, show, replay, views):
        app.command()(command)


def episodes(home: Home = None, as_json: Json = False) -> int:
    """List the episodes of this home, oldest first."""
    with _log(home) as log:
        begun = {event.stream: _when(event) for event in log.read() if event.version == 1}
        states = list(fold_all(log.read()).values())
    rows = [catalogue.row(state, begun[state.episode]) for state in states]
    if as_json:
        _json(rows)
    else:
        head = ("episode", "begun", "what", "where", "candidates", "outcome")
        _out(columns.table(head, [tuple(str(row[key]) for key in head) for row in rows]))
    return exits.WINNER


def leaderboard(
    operator: Annotated[
        str | None,
        typer.Argument(metavar="[OP]", help="Only this operator, name of a bundle's folder, or bundle digest."),
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> int:
    """The validated winners, ranked within each board.

    A board is one bundle, device, engine and grade. Below the winners stands what was promoted but not validated.
    """
    with _log(home) as log:
        states = list(fold_all(log.read()).values())
    if operator is not None and not any(named(state, operator) for state in states):
        raise exits.NotFound(f"no episode of an operator or bundle {operator!r} in this home; see `assay episodes`")
    rows = board(states, operator)
    if as_json:
        _json([row.as_dict() for row in rows])
    elif not rows:
        _out("nothing was promoted yet\n")
    else:
        head = ("rank", "status", "what", "where", "grade", "speedup", "at least", "us", "candidate")
        _out(columns.table(head, map(columns.board, rows)))
    return exits.WINNER


def show(name: Name, home: Home = None, as_json: Json = False) -> int:
    """The full account of one episode.

    What was compared, what was measured, and why each candidate ended as it did.
    """
    with _log(home) as log:
        state = fold(name, log.read(episode.known(log, name)))
    if as_json:
        _json(account.show(state))
    else:
        _out(account.text(state))
    return exits.WINNER


def replay(name: Name, home: Home = None, as_json: Json = False) -> int:
    """Decide an episode again, from its log alone.

    Its state is derived again from its events, and every decision made again from the recorded numbers.
    """
    with _log(home) as log:
        report = rederive.replay(log.read(episode.known(log, name)), log.blobs)
    if as_json:
        _json(report.as_dict())
    else:
        _out("".join(line + "\n" for line in _replayed(report)))
    return exits.WINNER if report.agree else exits.DISAGREES


def views(home: Home = None, as_json: Json = False) -> int:
    """Write the log as plain tables, for SQL and datasette.

    The file is views.sqlite in the home. It is derived, and may be deleted at any time.
    """
    with _log(home) as log:
        states = list(fold_all(log.read()).values())
        try:
            path = rebuild(states, log.home)
        except sqlite3.Error as error:
            raise exits.CannotCreate(f"{log.home / FILE}: {error}") from None
    if as_json:
        _json({"path": str(path), "episodes": len(states)})
    else:
        _out(f"{path}: {len(states)} episode{'' if len(states) == 1 else 's'}\n")
    return exits.WINNER


@log_app.command()
def tail(
    home: Home = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each new event.")] = False,
    stream: Annotated[str | None, typer.Option(help="Only this episode.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Events to begin with.")] = 20,
    as_json: Json = False,
) -> int:
    """The end of the log, as the lines that the run printed.

    JSON: one object a line.
    """
    with _log(home) as log:
        if stream is not None:
            episode.known(log, stream)
        past = list(log.read(stream))[-lines:] if lines else []
        before = ""
        after = past[-1].position if past else log.head().position
        for event in chain(past, log.tail(after) if follow else ()):
            if stream is not None and event.stream != stream:
                continue
            if not as_json and event.stream != before and event.version > 1:
                _out(livelog.line("episode", {"name": event.stream}) + "\n")  # else nobody knows whose line it is
            before = event.stream
            _event(event, as_json)
    return exits.WINNER


@log_app.command(name="show")
def show_log(
    home: Home = None,
    stream: Annotated[str | None, typer.Option(help="Only this episode.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only above this position (of the stream: version).")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many events.")] = None,
    as_json: Json = False,
) -> int:
    """Events from the beginning, one line each.

    JSON: one object a line, with the fact in full.
    """
    with _log(home) as log:
        if stream is not None:
            episode.known(log, stream)
        for event in log.read(stream, after, limit):
            _event(event, as_json, numbered=True)
    return exits.WINNER


@log_app.command(name="verify")
def verify_log(home: Home = None, as_json: Json = False) -> int:
    """Check the log: nothing changed, nothing missing.

    Every event, the chain of hashes, the schema and every blob, by code that shares nothing with the writer.
    """
    report = verify(host.home(home))
    if as_json:
        _json(report.__dict__)
    else:
        _out(f"{report.events} events, {report.blobs_checked} blobs, head {report.head}\n")
        _out("".join(f"bad: {problem}\n" for problem in report.problems) or "all intact\n")
    return exits.WINNER if report.ok else exits.CORRUPT


@contextmanager
def _log(home: Path | None) -> Iterator[Log]:
    with Log.open(host.home(home), read_only=True) as log:
        yield log


def _event(event: Event, as_json: bool, numbered: bool = False) -> None:
    if as_json:
        document = {
            "position": event.position,
            "stream": event.stream,
            "version": event.version,
            "event_id": event.event_id,
            "at": _when(event),
            "hash": event.hash.hex(),
            "fact": json.loads(event.payload),
        }
        _out(json.dumps(document, sort_keys=True) + "\n")
    else:
        head = f"{event.position:>6} {_when(event)} {event.stream} " if numbered else ""
        told = livelog.lines(event) if numbered else progress.lines(event)
        _out("".join(f"{head}{line}\n" for line in told))
    sys.stdout.flush()


def _when(event: Event) -> str:
    return datetime.fromtimestamp(event.at_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _replayed(report: rederive.Report) -> Iterator[str]:
    yield f"episode    {report.episode}"
    yield f"checked    {report.events} events, {report.checked} decisions, {report.blobs_checked} blobs"
    if not report.decision_code_same:
        yield f"code       decided by {livelog.short(report.recorded_code)}, replayed by {livelog.short(report.current_code)}"
    for found in report.divergences:
        yield f"differs    position {found.position}, {found.kind}:"
        yield f"           recorded {livelog.quoted(json.dumps(found.got, sort_keys=True))}"
        yield f"           derived  {livelog.quoted(json.dumps(found.expected, sort_keys=True))}"
    yield "result     agrees" if report.agree else "result     DISAGREES"


def _json(document: Any) -> None:
    _out(json.dumps(document, indent=2, sort_keys=True) + "\n")


def _out(text: str) -> None:
    sys.stdout.write(text)
