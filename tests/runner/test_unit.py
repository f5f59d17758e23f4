"""What the host makes of the judge's answers: whose failure is it?"""

from __future__ import annotations

import socket
import threading

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
