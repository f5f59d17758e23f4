"""The judge container's program: obeys the host over one socket, speaks to guests over others, never imports a candidate.

Argument: the device. It connects to the host's socket when it has imported all; the frozen bundle lies in its folder when the host
says `open`. Operations of the host, one JSON object each: `open`, `attach` (with a guest's connection), `load`, `series`, `close`.
The host decides what is called and when (it freezes and thaws the guests in between); this process decides what is right and how
long it took.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import torch

from ops import wire
from ops.judge.bracket import Bracket, Guest, Sample
from ops.judge.task import Task, TaskError

LINK = "/link/s"
TASK = "/task"


class Judge:
    """State of one measurement unit."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.guests: dict[str, Guest] = {}
        self.bracket: Bracket | None = None
        self.spin = False

    def open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Load the task. Answers the versions the judge runs on and each case's families."""
        self.spin = bool(order["spin"])
        task = Task(os.path.join(TASK, "task.py"), self.device)
        with open(os.path.join(TASK, "cases.json"), encoding="utf-8") as file:
            cases = {c["case_id"]: {**c.get("parameters", {}), "case_id": c["case_id"]} for c in json.load(file)}
        self.bracket = Bracket(task, cases, self.device, self.spin)
        return {
            "ok": True,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "families": {name: sorted(task.families(case)) for name, case in cases.items()},
            "tax_ns": {name: self.bracket.tax(name) for name in cases},
        }

    def attach(self, order: dict[str, Any]) -> dict[str, Any]:
        """Take over a guest's connection, by descriptor, and tell the guest that it is assigned."""
        guest = Guest(socket.socket(fileno=order["fd"]))
        hello = guest.ask({"op": "begin"}, order["timeout_s"])
        self.guests[order["arm"]] = guest
        said = {key: wire.clean(hello.get(key, ""), 100) for key in ("python", "torch", "triton", "device")}
        return {"ok": True, "hello": said}

    def load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Let the arm's guest load the source that now lies in its bundle folder."""
        guest = self.guests[order["arm"]]
        claim = guest.ask({"op": "load", "entry": order["entry"]}, order["timeout_s"])
        if claim == {"ok": True}:
            return {"claim": claim}
        return {"claim": {key: wire.clean(claim.get(key, "")) for key in ("error", "detail")}}

    def series(self, order: dict[str, Any]) -> dict[str, Any]:
        """Bracket calls in a row, one on each of `families` ("" is the task's own distribution), for `left_s` seconds at most. It
        stops after the first wrong one on the task's own inputs (one such call already decides), or when the guest is lost."""
        assert self.bracket is not None
        samples: list[Sample] = []
        guest = self.guests[order["arm"]]
        end = time.monotonic() + order["left_s"]
        for family in order["families"]:
            left = end - time.monotonic()
            if left <= 0:
                samples.append(self.bracket.late(guest))
                break
            samples.append(self.bracket.call(guest, order["case"], family, min(order["timeout_s"], left)))
            if guest.gone or (samples[-1].why and not family):
                break
        return {"samples": [s.__dict__ for s in samples]}

    def close(self, order: dict[str, Any]) -> dict[str, Any]:
        """The secret. The host asks only when every guest is dead."""
        assert self.bracket is not None
        return {"secret": self.bracket.seeds.reveal(), "calls": self.bracket.count}


def main() -> None:
    torch.set_num_threads(1)
    judge = Judge(sys.argv[1])
    host = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    host.connect(LINK)
    operations = {
        "open": judge.open,
        "attach": judge.attach,
        "load": judge.load,
        "series": judge.series,
        "close": judge.close,
    }
    while True:
        order, fds = wire.receive(host, max_fds=1)
        try:
            answer = operations[order["op"]]({**order, "fd": fds[0]} if fds else order)
            wire.encode(answer)
        except TaskError as error:
            answer = {"task_error": wire.clean(error)}
        except TimeoutError:
            answer = {"guest_error": "timeout"}
        except (RuntimeError, MemoryError, OSError) as error:
            answer = {
                "starved": wire.clean(error)
            }  # no memory for a call's blocks, say: who holds it is for the host to tell
        except wire.WireClosed:
            answer = {"guest_error": "guest-died"}
        except wire.WireError as error:
            answer = {"guest_error": "protocol", "detail": wire.clean(error)}
        wire.send(host, answer)


if __name__ == "__main__":
    try:
        main()
    except wire.WireClosed:
        os._exit(0)  # the host closed the unit
