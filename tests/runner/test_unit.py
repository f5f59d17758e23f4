"""What the host makes of the judge's answers: whose failure is it?"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops import wire
from runner.bundle import BundleError
from runner.unit import Unit
from sandbox.api import SandboxFault


@pytest.mark.parametrize(("operation", "kind"), [("open", BundleError), ("series", SandboxFault)])
def test_a_task_that_fails_before_any_source_exists_refuses_the_bundle(operation: str, kind: type[Exception]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    unit = object.__new__(Unit)
    unit.control = ours

    def answer() -> None:
        wire.receive(theirs)
        wire.send(theirs, {"task_error": "task.py: reference: KeyError: 'k'"})

    with ours, theirs:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(kind, match="reference: KeyError"):
            unit._ask({"op": operation}, 5.0)
        thread.join(5)


@pytest.mark.parametrize(
    ("change", "intact"),
    [
        (lambda place: None, True),
        (lambda place: (place / "kernel.py").unlink(), True),  # it never got that far
        (lambda place: (place / "kernel.py").write_bytes(b"another"), False),
        (lambda place: (place / "more").touch(), False),
        (lambda place: (place / "target.json").unlink(), False),
        (lambda place: os.link(place / "kernel.py", place.parent / "beside"), False),
        (lambda place: ((place / "cases.json").unlink(), os.mkfifo(place / "cases.json")), False),
        (lambda place: ((place / "cases.json").unlink(), (place / "cases.json").symlink_to("target.json")), False),
    ],
)
def test_a_guests_folder_is_intact_while_it_holds_what_it_was_given(
    tmp_path: Path, change: Callable[[Path], object], intact: bool
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for name in ("kernel.py", "cases.json", "target.json"):
        (place / name).write_bytes(b"given")
    change(place)
    unit: Any = object.__new__(Unit)
    unit.plan = SimpleNamespace(arms=[SimpleNamespace(name="a", source=b"given")])
    unit.guests = {"a": SimpleNamespace(place=place)}
    assert unit._sources_intact() is intact
