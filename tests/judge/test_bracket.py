"""One bracket call against guests that are played by a thread: what is caught, what is sealed, what is fresh."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import guestenv

pytestmark = pytest.mark.guest

SETUP = """
import fcntl, mmap, os, socket, tempfile, threading, time, torch, warnings
warnings.filterwarnings("ignore", message="The given buffer is not writable")
from ops import blocks, wire
from ops.judge.bracket import Bracket, Guest
from ops.judge.task import Task
folder = tempfile.mkdtemp()
open(os.path.join(folder, "task.py"), "w").write('''
import torch
ENTRY = "double"
def make_inputs(case, generator, device):
    return (torch.randn(case["B"], case["D"], generator=generator, device=device),)
def reference(x):
    return 2 * x
''')
out = {}

def bracket(kind=Bracket, **case):
    case = {"B": 64, "D": 64, "case_id": "main", **case}
    return kind(Task(os.path.join(folder, "task.py"), "cpu"), {"main": case}, "cpu", False)

def play(judge, behave, calls=1, timeout_s=5.0, family=""):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guest = Guest(ours)
    def run():
        try:
            for _ in range(calls):
                order, fds = wire.receive(theirs, max_fds=1)
                behave(theirs, {**order, "fd": fds[0]})
        finally:
            theirs.close()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    samples = [judge.call(guest, "main", family, timeout_s) for _ in range(calls)]
    thread.join(5)
    return samples

def fork(judge, behave, calls=1):
    # the same with a process: reasons, and what `behave` returned or the signal that it died of; it may leave an order unanswered
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said_r, said_w = os.pipe()
    child = os.fork()
    if not child:
        ours.close()
        order, fds = wire.receive(theirs, max_fds=1)
        os.write(said_w, json.dumps(behave(theirs, {**order, "fd": fds[0]})).encode())
        os._exit(0)
    theirs.close()
    os.close(said_w)
    guest = Guest(ours)
    whys = [judge.call(guest, "main", "", 5.0).why for _ in range(calls)]
    ours.close()
    said = os.read(said_r, 65536)
    _, status = os.waitpid(child, 0)
    return whys, json.loads(said) if said else os.WTERMSIG(status)

def open_(sock, order):
    wire.send(sock, {"ready": order["n"]})
    _, fds = wire.receive(sock, max_fds=1)
    given = blocks.adopt("cpu", fds[0], order["in_bytes"], writable=False)
    slot = blocks.adopt("cpu", order["fd"], order["out_bytes"], writable=True)
    return given, slot, blocks.views(given.base, order["inputs"])[0], blocks.views(slot.base, order["outputs"])[0]

def honest(sock, order):
    _, _, x, y = open_(sock, order)
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"]})
"""


def test_an_honest_guest_is_right_and_every_call_has_its_own_time() -> None:
    found = guestenv.run(
        SETUP
        + """
samples = play(bracket(), honest, calls=3)
print(json.dumps([[s.n for s in samples], [s.why for s in samples], all(s.ns > 0 for s in samples)]))
"""
    )
    assert found == [[0, 1, 2], ["", "", ""], True]


def test_a_guest_that_says_done_and_finishes_between_our_look_and_our_copy_is_caught() -> None:
    """The strongest form of running ahead of the copy: the snapshot is entirely right, and yet it was early."""
    found = guestenv.run(
        SETUP
        + """
looked, written = threading.Event(), threading.Event()
class Paused(Bracket):
    def _looked(self):
        looked.set()
        written.wait(5)
def early(sock, order):
    _, _, x, y = open_(sock, order)
    wire.send(sock, {"done": order["n"]})
    looked.wait(5)
    y.copy_(2 * x)
    written.set()
print(json.dumps([s.why for s in play(bracket(Paused), early)]))
"""
    )
    assert found == ["early-done"]


def test_every_way_of_not_answering_has_its_reason() -> None:
    found = guestenv.run(
        SETUP
        + """
def never_written(sock, order):
    open_(sock, order)
    wire.send(sock, {"done": order["n"]})
def wrong(sock, order):
    _, _, x, y = open_(sock, order)
    y.copy_(3 * x)
    wire.send(sock, {"done": order["n"]})
def done_before_go(sock, order):
    wire.send(sock, {"ready": order["n"]})
    wire.send(sock, {"done": order["n"]})
    time.sleep(0.3)
def dies(sock, order):
    wire.send(sock, {"ready": order["n"]})
def silent(sock, order):
    wire.send(sock, {"ready": order["n"]})
    time.sleep(1.5)
def garbage(sock, order):
    wire.send(sock, {"ready": order["n"]})
    sock.send(b"[1, NaN]")
    time.sleep(0.3)
def brags(sock, order):
    _, _, x, y = open_(sock, order)
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"], "ns": 1})
def not_ready(sock, order):
    wire.send(sock, {"ready": order["n"] + 1})
def raises(sock, order):
    wire.send(sock, {"ready": order["n"]})
    wire.receive(sock, max_fds=1)
    wire.send(sock, {"error": "raised", "n": order["n"], "detail": "ValueError: no"})
def misshapen(sock, order):
    wire.send(sock, {"ready": order["n"]})
    wire.receive(sock, max_fds=1)
    wire.send(sock, {"error": "shape", "n": order["n"], "detail": "returned nothing"})
for behave in (never_written, wrong, done_before_go, dies, silent, garbage, brags, not_ready, raises, misshapen):
    out[behave.__name__] = play(bracket(), behave, timeout_s=1.0)[0].why
print(json.dumps(out))
"""
    )
    assert found == {
        "never_written": "unwritten",
        "wrong": "wrong",
        "done_before_go": "unwritten",
        "dies": "guest-died",
        "silent": "timeout",
        "garbage": "protocol",
        "brags": "protocol",
        "not_ready": "protocol",
        "raises": "guest-error",
        "misshapen": "shape",
    }


def test_a_guest_that_was_lost_once_is_never_asked_again() -> None:
    """Its late answer would be taken for the answer to another call."""
    found = guestenv.run(
        SETUP
        + """
def late(sock, order):
    wire.send(sock, {"ready": order["n"]})
    time.sleep(1.0)
    wire.send(sock, {"done": order["n"]})
    time.sleep(1.0)
judge = bracket()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
guest = Guest(ours)
threading.Thread(target=lambda: late(theirs, wire.receive(theirs, max_fds=1)[0]), daemon=True).start()
print(json.dumps([judge.call(guest, "main", "", 0.3).why, judge.call(guest, "main", "", 0.3).why]))
"""
    )
    assert found == ["timeout", "guest-died"]


def test_inputs_cannot_be_written_and_no_block_can_be_cut_under_the_judge() -> None:
    """As a guest meets them: under a uid that is not the judge's."""
    found = guestenv.run(
        SETUP
        + """
def attempt(what):
    try:
        what()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "allowed"
def hostile(sock, order):
    given, slot, x, y = open_(sock, order)
    os.setresuid(65534, 65534, 65534)
    out["open it for writing"] = attempt(lambda: os.open(f"/proc/self/fd/{given.fd}", os.O_RDWR))
    out["open its mode"] = attempt(lambda: os.fchmod(given.fd, 0o600))
    out["map it writable"] = attempt(lambda: mmap.mmap(given.fd, order["in_bytes"]))
    for name, block in (("input", given), ("slot", slot)):
        out[f"cut the {name}"] = attempt(lambda: os.ftruncate(block.fd, 0))
        out[f"grow the {name}"] = attempt(lambda: os.ftruncate(block.fd, 1 << 20))
        out[f"seal the {name}"] = attempt(lambda: fcntl.fcntl(block.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE))
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"]})
    return out
samples, out = fork(bracket(), hostile)
print(json.dumps([samples[0], out]))
"""
    )
    why, tried = found
    assert why == ""
    assert tried.pop("cut the input") == tried.pop("grow the input") == "OSError", tried  # EINVAL: the fd is read-only
    assert set(tried.values()) == {"PermissionError"}, tried
    assert len(tried) == 7


def test_an_input_is_sealed_against_writing_even_for_whoever_may_open_it() -> None:
    found = guestenv.run(
        SETUP
        + """
def root(sock, order):
    given, slot, x, y = open_(sock, order)
    again = os.open(f"/proc/self/fd/{given.fd}", os.O_RDWR)
    for what in (lambda: os.pwrite(again, b"0", 0), lambda: mmap.mmap(again, order["in_bytes"])):
        try:
            what()
        except PermissionError:
            out[len(out)] = "refused"
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"]})
print(json.dumps([play(bracket(), root)[0].why, len(out)]))
"""
    )
    assert found == ["", 2]


KEEPS = """
def keep(sock, order):
    kept = []
    for _ in range(3):
        given, slot, x, y = open_(sock, order)
        y.copy_(2 * x)
        kept.append((given, slot, x, y))
        wire.send(sock, {"done": order["n"]})
        order, fds = wire.receive(sock, max_fds=1)  # the judge prepares the next call when it is done with this one
        order["fd"] = fds[0]
    return [[os.fstat(b.fd).st_blocks for b in (given, slot)] for given, slot, _, _ in kept]
"""


def test_what_a_guest_keeps_mapped_holds_no_memory_of_the_judge() -> None:
    """Shared pages are charged to who touched them first, so a hoarder could have had the judge killed for memory."""
    found = guestenv.run(SETUP + KEEPS + "print(json.dumps(fork(bracket(B=512, D=512), keep, calls=4)))")
    whys, held = found
    assert whys == ["", "", "", "guest-died"]
    assert held == [[0, 0], [0, 0], [0, 0]]


def test_a_guest_that_reads_an_input_of_an_earlier_call_dies_of_it_and_the_judge_does_not() -> None:
    found = guestenv.run(
        SETUP
        + """
def late(sock, order):
    _, _, x, y = open_(sock, order)
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"]})
    wire.receive(sock, max_fds=1)
    return float(x.sum())
print(json.dumps(fork(bracket(), late, calls=2)))
"""
    )
    assert found == [["", "guest-died"], 7]  # SIGBUS


def test_no_input_and_no_memory_is_seen_twice() -> None:
    found = guestenv.run(
        SETUP
        + """
inputs, inodes = set(), set()
held = []
def look(sock, order):
    given, slot, x, y = open_(sock, order)
    held.append((given, slot))  # an inode number in use cannot be given to another block
    inodes.update((os.fstat(given.fd).st_ino, os.fstat(slot.fd).st_ino))
    inputs.add(bytes(x.numpy().tobytes()))
    y.copy_(2 * x)
    wire.send(sock, {"done": order["n"]})
play(bracket(), look, calls=5)
print(json.dumps([len(inputs), len(inodes)]))
"""
    )
    assert found == [5, 10]


FAMILIES = """
open(os.path.join(folder, "task.py"), "w").write('''
import torch
ENTRY = "scale"
def make_inputs(case, generator, device):
    return (torch.randn(case["B"], case["D"], generator=generator, device=device), 0.5)
def reference(x, factor):
    return factor * x
def distributions(case):
    def huge(case, generator, device):
        return (1e6 * torch.randn(case["B"], case["D"], generator=generator, device=device), 0.25)
    def narrow(case, generator, device):
        return (torch.randn(case["B"], 1, generator=generator, device=device), 0.5)
    return {"huge": huge, "narrow": narrow}
''')
seen = []
def look(sock, order):
    slot = blocks.adopt("cpu", order["fd"], order["out_bytes"], writable=True)
    y = blocks.views(slot.base, order["outputs"])[0]
    seen.append([float(y.abs().max()), order["inputs"]])
    wire.send(sock, {"ready": order["n"]})
    go, fds = wire.receive(sock, max_fds=1)
    given = blocks.adopt("cpu", fds[0], order["in_bytes"], writable=False)
    x = blocks.views(given.base, order["inputs"][:1])[0]
    seen[-1].append(go["scalars"])
    y.copy_(go["scalars"][0] * x)
    wire.send(sock, {"done": order["n"]})
"""


def test_a_slot_looks_the_same_before_an_ordinary_call_and_before_a_hidden_family() -> None:
    found = guestenv.run(
        SETUP
        + FAMILIES
        + """
why = [s.why for s in play(bracket(), look) + play(bracket(), look, family="huge")]
print(json.dumps([why, [s[0] for s in seen]]))
"""
    )
    why, largest = found
    assert why == ["", ""]
    assert all(0 < value < 10 for value in largest), largest


def test_a_family_whose_output_has_another_shape_is_the_tasks_fault() -> None:
    """Its slot would tell it from an ordinary call."""
    found = guestenv.run(
        SETUP
        + FAMILIES
        + """
from ops.judge.task import TaskError
try:
    play(bracket(), look, family="narrow")
except TaskError as error:
    print(json.dumps(str(error)))
"""
    )
    assert found == "family 'narrow': outputs differ in shape or dtype from those of make_inputs"


def test_a_scalar_leaves_with_the_input_and_not_before_the_clock_starts() -> None:
    found = guestenv.run(
        SETUP
        + FAMILIES
        + """
play(bracket(), look, family="huge")
print(json.dumps(seen[0][1:]))
"""
    )
    described, scalars = found
    assert described[1] == {"scalar": 0}
    assert scalars == [0.25]


def test_a_task_that_raises_is_the_bundles_fault_and_want_of_memory_is_not() -> None:
    found = guestenv.run(
        SETUP
        + """
from ops.judge.task import TaskError
said = []
for body in ("raise KeyError('k')", "raise RuntimeError('sizes differ')", "raise RuntimeError('cannot allocate memory')", "x[9]"):
    open(os.path.join(folder, "task.py"), "w").write(f'''
import torch
def make_inputs(case, generator, device):
    return (torch.randn(4, 4, generator=generator, device=device),)
def reference(x):
    {body}
''')
    try:
        bracket().tax("main")
    except (TaskError, RuntimeError) as error:
        said.append(f"{type(error).__name__}: {error}"[:60])
print(json.dumps(said))
"""
    )
    assert [line.split(":")[0] for line in found] == ["TaskError", "TaskError", "RuntimeError", "TaskError"], found
    assert found[0] == "TaskError: task.py: reference: KeyError: 'k'"


def test_a_guest_that_leaves_what_it_is_sent_unread_costs_the_judge_no_time() -> None:
    """It may peek at an order and answer it, and so fill the judge's queue: a send that waited would let it stall the unit."""
    found = guestenv.run(
        SETUP
        + """
import time
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
guest, sent, began = Guest(ours), 0, time.monotonic()
try:
    while True:
        guest.tell({"op": "ready", "pad": "x" * 1000}, 30.0)
        sent += 1
except wire.WireError as error:
    print(json.dumps([sent > 0, str(error), time.monotonic() - began < 10.0, ours.gettimeout()]))
"""
    )
    assert found == [True, "does not read what it is sent", True, 30.0]


def test_an_arm_whose_time_is_over_is_lost_before_its_next_call() -> None:
    found = guestenv.run(
        SETUP
        + """
from ops.judge.main import Judge
judge = Judge("cpu")
judge.bracket = bracket()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
judge.guests["a"] = Guest(ours)
told = judge.series({"arm": "a", "case": "main", "families": ["", ""], "timeout_s": 5.0, "left_s": 0.0})["samples"]
print(json.dumps([[s["why"] for s in told], judge.guests["a"].gone]))
"""
    )
    assert found == [["timeout"], True]
