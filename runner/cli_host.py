"""The command about this machine: what it can do."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import typer

from runner import doctor as clinic
from runner import exits, host
from runner.cli_image import image_app
from runner.options import GuestPython, Home, Json


def register(app: typer.Typer) -> None:
    """Hang the commands into the program."""
    app.command()(doctor)
    app.add_typer(image_app, name="image")


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


def _json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
