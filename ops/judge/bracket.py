"""The causal bracket: one call, timed from "input released" to "our own copy of the whole output held", and checked.

    ...  the guest maps a fresh output slot, which tells nothing of the input, and says "ready"
    t0   our clock, before the first byte about this input leaves: fresh memory, unseen so far, goes out by fd
    ...  it maps that, computes, copies the result into the output slot, says "done"
    at "done" we gather secret random elements (a guest that says "done" and goes on computing beside our copy is caught: what
         we gathered then differs from the copy)
    t1   our clock, when the copy is complete
    then compare with the expected output, which this process alone holds

Before t0 the slot is filled with plausible wrong data: the right output of another ordinary input that is never released to
anyone, whatever family comes. Scalar arguments leave with the input. The copy tax (mapping, copying) is never subtracted; all
arms pay it alike. One call is outstanding at a time.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

import torch

from ops import blocks, wire
from ops.judge.compare import compare
from ops.judge.seeds import Seeds
from ops.judge.task import NAMES, Expected, Task, TaskError

PROBES = 256
"""Secret random elements gathered per slot at "done"."""
DECOYS = 2


@dataclass(frozen=True)
class Sample:
    """One call. `ns` is its bracket; meaningful only where `why` is empty."""

    n: int
    ns: int
    why: str
    worst: float | None
    detail: str = ""


class Guest:
    """The judge's end of one arm's connection. Everything read from it is a claim."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.gone = sock, False

    def ask(self, message: dict[str, Any], timeout_s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send and wait for one answer (which carries no fds)."""
        self.tell(message, timeout_s, fds)
        return wire.receive(self.sock)[0]

    def tell(self, message: dict[str, Any], timeout_s: float, fds: tuple[int, ...] = ()) -> None:
        """Send without ever waiting: one message is outstanding, so there is room for it, unless a guest peeks at what it is sent
        and leaves it queued. What is awaited next may take `timeout_s`."""
        self.sock.settimeout(0)
        try:
            wire.send(self.sock, message, fds)
        except BlockingIOError:
            raise wire.WireError("does not read what it is sent") from None
        finally:
            self.sock.settimeout(timeout_s)


class Bracket:
    """Runs calls of any arm on any case. Owns the secret, the decoys and the clock."""

    def __init__(self, task: Task, cases: dict[str, dict[str, Any]], device: str, spin: bool) -> None:
        self.task, self.cases, self.device, self.spin = task, cases, device, spin
        self.seeds = Seeds()
        self.count = 0
        self._decoys: dict[tuple[str, int], list[torch.Tensor]] = {}

    def call(self, guest: Guest, case_id: str, family: str, timeout_s: float) -> Sample:
        """One timed and checked call; a guest that is gone or breaks the protocol yields a reason, never an exception."""
        n = self.count
        self.count += 1
        if guest.gone:
            return Sample(n, 0, "guest-died", None)
        case = self.cases[case_id]
        inputs = self.task.inputs(case, self.seeds.generator(str(n), self.device), family)
        expected = self.task.expected(case, inputs)
        prefill = self._decoy(case_id, n % DECOYS)
        if [_kind(p) for p in prefill] != [(tuple(s["shape"]), s["dtype"]) for s in expected.specs]:
            raise TaskError(f"family {family!r}: outputs differ in shape or dtype from those of make_inputs")
        order, source, target, slots = self._publishable(n, inputs, expected, prefill)
        scalars = [value for value in inputs if not isinstance(value, torch.Tensor)]
        try:
            return self._timed(guest, order, scalars, source, target, slots, expected, prefill, timeout_s)
        except TimeoutError:
            guest.gone = True  # whatever it says later would be taken for another call's answer
            return Sample(n, 0, "timeout", None)
        except wire.WireClosed:
            guest.gone = True
            return Sample(n, 0, "guest-died", None)
        except wire.WireError as error:
            guest.gone = True
            return Sample(n, 0, "protocol", None, wire.clean(error))
        finally:
            del slots
            for block in (source, target):
                block.reclaim()
                block.close()

    def late(self, guest: Guest) -> Sample:
        """The call that was due when an arm's time in this unit was over: lost, and the guest with it."""
        guest.gone, n = True, self.count
        self.count += 1
        return Sample(n, 0, "timeout", None)

    def tax(self, case_id: str) -> int:
        """Nanoseconds that a guest which rewrites our shim can save per call: an honest wrapper returns fresh tensors, which the
        shim copies into the slot; a hostile one writes into the slot at once. Measured on a case's output; the largest of five."""
        results = self._decoy(case_id, 0)
        specs = [{"shape": list(r.shape), "dtype": NAMES[r.dtype]} for r in results]
        block = blocks.create(self.device, blocks.layout(specs))
        slots = blocks.views(block.base, specs)
        times = []
        for _ in range(6):
            self._settle()
            start = time.perf_counter_ns()
            fresh = [torch.empty_like(r).copy_(r) for r in results]
            for slot, value in zip(slots, fresh, strict=True):
                slot.copy_(value)
            self._settle()
            times.append(time.perf_counter_ns() - start)
        del slots, fresh
        block.close()
        return max(times[1:])

    def _timed(
        self,
        guest: Guest,
        order: dict[str, Any],
        scalars: list[Any],
        source: blocks.Block,
        target: blocks.Block,
        slots: list[torch.Tensor],
        expected: Expected,
        prefill: list[torch.Tensor],
        timeout_s: float,
    ) -> Sample:
        n = order["n"]
        probes = [torch.tensor(_secret_indices(s.numel()), dtype=torch.int64, device=self.device) for s in slots]
        secret_input = source.share(writable=False)
        if guest.ask(order, timeout_s, (target.share(writable=True),)) != {"ready": n}:
            raise wire.WireError("not ready")
        self._settle()
        deadline = time.monotonic() + timeout_s
        t0 = time.perf_counter_ns()
        guest.tell({"go": n, "scalars": scalars}, timeout_s, (secret_input,))
        raw, _ = wire.receive_raw(guest.sock, spin_until=deadline if self.spin else None)
        gathered = [s.reshape(-1)[p] for s, p in zip(slots, probes, strict=True)]
        self._looked()
        snapshots = [s.clone() for s in slots]
        self._settle()
        t1 = time.perf_counter_ns()
        answer = wire.decode(raw)
        if "error" in answer:
            why = "shape" if answer["error"] == "shape" else "guest-error"
            return Sample(n, t1 - t0, why, None, wire.clean(answer.get("detail", "")))
        if answer != {"done": n}:
            raise wire.WireError("neither done nor error")
        for snapshot, probe, early in zip(snapshots, probes, gathered, strict=True):
            if not torch.equal(_bits(snapshot.reshape(-1)[probe]), _bits(early)):
                return Sample(n, t1 - t0, "early-done", None)
        finding = compare(snapshots, expected, prefill)
        return Sample(n, t1 - t0, finding.why, finding.worst)

    def _publishable(
        self, n: int, inputs: list[Any], expected: Expected, prefill: list[torch.Tensor]
    ) -> tuple[dict[str, Any], blocks.Block, blocks.Block, list[torch.Tensor]]:
        """Fresh blocks that hold this call's inputs and prefilled slots; no guest has seen their fds yet."""
        mutates = self.task.mutates
        returned = len(expected.specs) - len(mutates)
        outputs = [dict(s) for s in expected.specs]
        described: list[dict[str, Any]] = []
        given: list[tuple[dict[str, Any], torch.Tensor]] = []
        for index, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                described.append({"scalar": sum("scalar" in d for d in described)})  # which one of those sent at t0
            else:
                # an input that is updated in place goes out like every other, at t0; the shim copies it into its slot
                spec: dict[str, Any] = {"shape": list(value.shape), "dtype": NAMES[value.dtype]}
                if index in mutates:
                    spec["slot"] = returned + mutates.index(index)
                described.append(spec)
                given.append((spec, value))
        in_bytes = blocks.layout([spec for spec, _ in given])
        out_bytes = blocks.layout(outputs)
        source, target = blocks.create(self.device, in_bytes), blocks.create(self.device, out_bytes)
        for view, (_, value) in zip(blocks.views(source.base, [s for s, _ in given]), given, strict=True):
            view.copy_(value)
        slots = blocks.views(target.base, outputs)
        for slot, wrong in zip(slots, prefill, strict=True):
            slot.copy_(wrong)
        order = {
            "op": "ready",
            "n": n,
            "inputs": described,
            "outputs": outputs,
            "returned": returned,
            "in_bytes": source.base.numel(),
            "out_bytes": target.base.numel(),
        }
        return order, source, target, slots

    def _decoy(self, case_id: str, index: int) -> list[torch.Tensor]:
        """Right outputs of an ordinary input that nobody is ever given: a slot never tells that a hidden family comes."""
        key = (case_id, index)
        if key not in self._decoys:
            label = hashlib.sha256(repr(key).encode()).hexdigest()
            case = self.cases[case_id]
            inputs = self.task.inputs(case, self.seeds.generator(f"decoy {label}", self.device))
            made = self.task.expected(case, inputs)
            self._decoys[key] = [v.to(blocks.DTYPES[s["dtype"]]) for v, s in zip(made.values, made.specs, strict=True)]
        return self._decoys[key]

    def _looked(self) -> None:
        """The secret elements are gathered (on a GPU: in stream order before the copy). A seam for the test of the worst case."""

    def _settle(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _secret_indices(count: int) -> list[int]:
    return [secrets.randbelow(count) for _ in range(min(PROBES, count))]


def _kind(value: torch.Tensor) -> tuple[tuple[int, ...], str]:
    return tuple(value.shape), NAMES[value.dtype]


def _bits(values: torch.Tensor) -> torch.Tensor:
    """NaN compares unequal to itself; bits do not."""
    return values.contiguous().view(torch.uint8)
