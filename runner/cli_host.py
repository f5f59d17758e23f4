"""The commands about this machine: what it can do, and whether its sandboxes hold."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from runner import doctor as clinic
from runner import exits, host
from runner.cli_image import image_app
from runner.options import Engine, GuestPython, Home, Json

sandbox_app = typer.Typer(help="Whether the sandbox holds here.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Hang the commands into the program."""
    app.command()(doctor)
    app.add_typer(image_app, name="image")
    app.add_typer(sandbox_app, name="sandbox")


def doctor(home: Home = None, guest_python: GuestPython = None, as_json: Json = False) -> int:
    """What this host can do, and the fix for what it cannot. Code 0 when some sandbox works, else 69."""
    findings = clinic.examine(guest_python, host.home(home))
    works = clinic.works(findings)
    if as_json:
        _json({"works": works, "findings": [asdict(found) for found in findings]})
    else:
        for found in findings:
            mark = "ok  " if found.ok else "--  "
            sys.stdout.write(f"{mark}{found.name}: {found.detail}" + (f"; {found.fix}" if found.fix else "") + "\n")
        sys.stdout.write("candidates can be run here\n" if works else "no sandbox works here: nothing can be run\n")
    return exits.WINNER if works else exits.UNAVAILABLE


@sandbox_app.command()
def check(
    engine: Engine = "auto",
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this program; may be repeated.")] = None,
    list_rows: Annotated[bool, typer.Option("--list", help="Show the programs and run nothing.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="A program that was not run counts as a difference.")
    ] = False,
    guest_python: GuestPython = None,
    as_json: Json = False,
) -> int:
    """Run hostile programs in the sandbox, each against what must come of it. Code 0 when all is so, else 76."""
    from runner.check import command

    if list_rows:
        return command.listing(only or (), as_json=as_json)
    return command.check(engine, only or (), guest_python, strict=strict, as_json=as_json)


@sandbox_app.command()
def gc(as_json: Json = False) -> int:
    """Remove what killed runners left: containers, cgroups, folders. Never what a live runner or anybody else owns."""
    from runner.workspace import sweep
    from sandbox import leavings

    containers, stuck = leavings.containers()
    groups, busy = leavings.groups()
    removed = [*containers, *groups, *(f"folder {folder}" for folder in sweep())]
    kept = [*stuck, *busy]
    if as_json:
        _json({"removed": removed, "kept": kept})
    else:
        sys.stdout.write("".join(f"removed {what}\n" for what in removed) or "nothing was left\n")
    for problem in kept:
        sys.stderr.write(f"assay: not removed: {' '.join(problem.split())}\n")
    return exits.FAULT if kept else exits.WINNER


def _json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
