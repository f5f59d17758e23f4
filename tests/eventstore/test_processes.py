"""Several processes on one log: nothing is lost, doubled or out of order, also when a writer is killed."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from eventstore.errors import StoreLocked
from eventstore.facts import Faulted
from eventstore.store import ANY, Store
from eventstore.verify import examine, verify

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import sys, itertools
from pathlib import Path
from eventstore.facts import Faulted
from eventstore.store import ANY, Store
def fault(n): return Faulted(stage="test", detail="", attempt=n)
home = Path(sys.argv[1])
"""
APPEND_MANY = (
    PRELUDE
    + """
store, me, count = Store.open(home, wait_s=60), sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
for n in range(count):
    store.append(me, [fault(n)], expected=n, event_ids=[f"{me}-{n}"])
    store.append("shared", [fault(n), fault(n)], expected=ANY, event_ids=[f"{me}-shared-{n}", f"{me}-shared-{n}b"])
store.close()
"""
)
APPEND_UNTIL_KILLED = (
    PRELUDE
    + """
store = Store.open(home)
for n in itertools.count():
    last = store.append("ep", [fault(n), fault(n), fault(n)], expected=ANY)[-1]
    print(last.position, flush=True)
"""
)
TAIL = (
    PRELUDE
    + """
with Store.open(home) as store:
    print("open", flush=True)
    for event in store.tail(poll_s=0.002):
        print(event.position, event.stream, event.version, flush=True)
        if event.stream == "end": break
"""
)


def program(source: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def fault(n: int) -> Faulted:
    return Faulted(stage="test", detail="", attempt=n)


def test_four_processes_append_densely_and_each_event_stands_there_once(tmp_path):
    Store.open(tmp_path).close()
    writers = [program(APPEND_MANY, tmp_path, name, 40) for name in "abcd"]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.communicate()[1] or writer.returncode for writer in writers] == [0, 0, 0, 0]
    with Store.open(tmp_path) as store:
        events = list(store.read())
        assert store.streams() == dict.fromkeys(store.streams(), 40) | {"shared": 320}
    assert [event.position for event in events] == list(range(1, 481))
    suffixes = [f"{n}" for n in range(40)]
    wanted = {f"{me}-{n}" for me in "abcd" for n in suffixes}
    wanted |= {f"{me}-shared-{n}{half}" for me in "abcd" for n in suffixes for half in ("", "b")}
    assert {event.event_id for event in events} == wanted
    # a batch is never torn apart by another writer
    halves = [event.event_id for event in events if "shared" in event.event_id]
    assert [first + "b" for first in halves[::2]] == halves[1::2]
    assert examine(tmp_path).ok


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(4):
        writer = program(APPEND_UNTIL_KILLED, tmp_path)
        assert writer.stdout
        writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        said = writer.communicate()[0].split("\n")[:-1]  # a line without its end was not said
        acknowledged = max([acknowledged, *map(int, said)])
        report = verify(tmp_path)
        assert (report.ok, report.problems) == (True, ())
        assert report.events >= acknowledged
        assert report.events % 3 == 0  # no torn batch
    with Store.open(tmp_path) as store:
        assert store.append("ep", [fault(1)], expected=ANY)[0].position == report.events + 1


def test_a_tail_in_another_process_sees_every_event_once_in_order(tmp_path):
    Store.open(tmp_path).close()
    reader = program(TAIL, tmp_path)
    assert reader.stdout
    assert reader.stdout.readline() == "open\n"
    writers = [program(APPEND_MANY, tmp_path, name, 30) for name in "ab"]
    for writer in writers:
        writer.communicate("go\n")
    with Store.open(tmp_path) as store:
        store.append("end", [fault(1)], expected=ANY)
        events = [f"{event.position} {event.stream} {event.version}" for event in store.read()]
    assert reader.communicate()[0].splitlines() == events
    assert len(events) == 181


def test_a_log_that_another_process_holds_is_one_clear_line(tmp_path):
    with Store.open(tmp_path, wait_s=0.05) as store, (tmp_path / "log.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked) as caught:
            store.append("ep", [fault(1)], expected=ANY)
        assert str(caught.value) == f"{tmp_path}/log.lock is held by another process (waited 0.05 s)"
        with pytest.raises(StoreLocked):
            Store.open(tmp_path, wait_s=0.05)
        assert list(store.read()) == []  # reading needs no lock
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert store.append("ep", [fault(1)], expected=ANY)[0].position == 1


def test_a_foreign_program_that_holds_the_database_is_one_clear_line(tmp_path):
    with Store.open(tmp_path, wait_s=0.05) as store:
        foreign = apsw.Connection(str(tmp_path / "log.sqlite"))
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked, match=r"log\.sqlite is locked by another program: .*database is locked$"):
            store.append("ep", [fault(1)], expected=ANY)
        foreign.execute("ROLLBACK")
        foreign.close()
        assert store.append("ep", [fault(1)], expected=ANY)[0].position == 1


def test_an_append_keeps_foreign_writers_out_from_its_first_read_to_its_commit(tmp_path, monkeypatch):
    # a deferred transaction would let one in here, and then fail at its own first write
    with Store.open(tmp_path) as store:
        foreign = apsw.Connection(str(tmp_path / "log.sqlite"))

        def between_read_and_write(*_: object) -> None:
            with pytest.raises(apsw.BusyError):
                foreign.execute("BEGIN IMMEDIATE")

        monkeypatch.setattr("eventstore.store.check_expected", between_read_and_write)
        assert store.append("ep", [fault(1)], expected=ANY)[0].position == 1
        foreign.close()


def test_a_writer_waits_for_another_and_then_goes_on(tmp_path):
    with Store.open(tmp_path, wait_s=30) as store, (tmp_path / "log.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting: list[int] = []
        thread = threading.Thread(
            target=lambda: waiting.append(store.append("ep", [fault(1)], expected=ANY)[0].position)
        )
        thread.start()
        time.sleep(0.05)
        assert waiting == []
        fcntl.flock(lock, fcntl.LOCK_UN)
        thread.join()
        assert waiting == [1]


def test_a_reader_does_not_stop_a_writer_nor_the_other_way_round(tmp_path):
    def positions(events: Iterator[object]) -> list[int]:
        return [event.position for event in events]  # type: ignore[attr-defined]

    with Store.open(tmp_path) as writer, Store.open(tmp_path, read_only=True) as reader:
        writer.append("ep", [fault(n) for n in range(100)], expected=ANY)
        half_read = reader.read()
        first = [next(half_read).position for _ in range(10)]
        writer.append("ep", [fault(100)], expected=ANY)
        # it holds no snapshot between pages: what came meanwhile is read as well, in its place
        assert first + positions(half_read) == list(range(1, 102))


def test_the_verifier_says_in_one_line_why_it_could_not_look(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "eventstore.verify", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    said = json.loads(done.stdout)
    assert (done.returncode, said) == (2, {"error": "StoreMissing", "message": f"no log at {tmp_path}/log.sqlite"})
