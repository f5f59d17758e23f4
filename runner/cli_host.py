"""The commands about this machine: what it can do, and whether its sandboxes hold."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from runner import devices, exits, host
from runner import doctor as clinic
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
    gpu: Annotated[bool, typer.Option("--gpu", help="Faulty kernels on this host's GPU too.")] = False,
    guest_python: GuestPython = None,
    as_json: Json = False,
) -> int:
    """Run hostile programs in the sandbox, each against what must come of it. Code 0 when all is so, else 76."""
    from runner.check import command

    if list_rows:
        return command.listing(only or (), as_json=as_json)
    return command.check(engine, only or (), guest_python, strict=strict, as_json=as_json, gpu=gpu)


@sandbox_app.command()
def gc(
    release_gpu: Annotated[
        str | None,
        typer.Option("--release-gpu", metavar="UUID", help="Only this: lift a GPU's quarantine if it passes."),
    ] = None,
    engine: Engine = "auto",
    guest_python: GuestPython = None,
    as_json: Json = False,
) -> int:
    """Remove what killed runners left: containers, cgroups, folders. Never what a live runner or anybody else owns."""
    if release_gpu is not None:
        return _release(release_gpu, engine, guest_python, as_json=as_json)
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


def _release(uuid: str, engine: str, guest_python: Path | None, *, as_json: bool) -> int:
    from images.host import host_image
    from runner.gated import release
    from sandbox.find import find

    if uuid not in [found["uuid"] for found in devices.gpus()]:
        raise exits.Unavailable(f"no GPU {uuid} on this host")
    sandbox = find(engine)  # type: ignore[arg-type]
    said = release(uuid, sandbox, host_image(host.guest_python(guest_python), docker=sandbox.name == "docker"))
    _json({"released": said}) if as_json else sys.stdout.write(said + "\n")
    return exits.WINNER


def _json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
