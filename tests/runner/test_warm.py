"""Blanks: ready before anybody knows what for, used once, and nothing left of those that nobody used."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.api import Image
from runner import blank as blanks
from runner import devices, warm
from runner.jobs import Jobs
from runner.warm import Pool
from sandbox.api import Captured, Job, Outcome, SandboxFault
from sandbox.fake import FakeRunning, FakeSandbox

JOBS = Jobs(Image("host", "sha256:" + "0" * 64, "/usr/bin/python3"), "cpu")
OVER = threading.Event()


def connects(job: Job) -> int:
    """What a container does when it has imported torch: connect, then wait for an order."""
    link = next(m.source for m in job.mounts if m.target == "/link")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(link / "s"))
        OVER.wait(20)
    return 0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty temporary folder; and whoever connects here has our own uid."""
    OVER.clear()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(blanks, "_uid", lambda role: os.getuid())
        yield Path(folder)
        OVER.set()


@pytest.fixture
def sandbox(home: Path) -> FakeSandbox:
    return FakeSandbox({"judge": connects, "guest": connects})


def test_a_filled_pool_gives_what_is_ready_and_each_only_once(sandbox: FakeSandbox) -> None:
    with Pool(sandbox, JOBS) as pool:
        pool.fill("sha256:b", 2)
        assert sorted(r._job.role for r in sandbox.started) == ["guest", "guest", "judge"]
        pool.fill("sha256:b", 2)
        taken = [pool.take("guest", "sha256:b") for _ in range(3)]
        assert len(sandbox.started) == 4, "two were there, the third was started now"
        assert len({blank.id for blank in taken}) == 3
        for blank in taken:
            assert blank.ready(5) is blank.ready(5)
            assert blank.warm
            blank.close()


def test_a_blank_given_twice_is_an_error(sandbox: FakeSandbox) -> None:
    with Pool(sandbox, JOBS) as pool:
        first = pool.take("guest", "sha256:b")
        pool._blanks.append((pool.key("sha256:b"), first))
        with pytest.raises(SandboxFault, match="given before"):
            pool.take("guest", "sha256:b")


def test_nothing_is_left_of_blanks_that_nobody_used(sandbox: FakeSandbox, home: Path) -> None:
    with Pool(sandbox, JOBS) as pool:
        pool.fill("sha256:b", 3)
        assert len(list(home.iterdir())) == 4
    assert list(home.iterdir()) == []
    assert all(ended(running) for running in sandbox.started)


@pytest.mark.parametrize("what", ["bundle", "driver", "code", "age", "death"])
def test_a_blank_is_drained_when_what_it_was_started_for_is_gone(
    sandbox: FakeSandbox, home: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with Pool(sandbox, JOBS) as pool:
        pool.fill("sha256:b", 1)
        for _, blank in pool._blanks:
            blank.ready(5)
        bundle = "sha256:other" if what == "bundle" else "sha256:b"
        if what == "driver":
            monkeypatch.setattr(devices, "driver", lambda gpu: "999.1")
        if what == "code":
            monkeypatch.setattr(warm, "CODE", ("ops",))
        if what == "age":
            monkeypatch.setattr(warm, "IDLE_S", 0.0)
        if what == "death":
            OVER.set()
            for running in sandbox.started:
                running._ended.wait(5)
        blank = pool.take("guest", bundle)
        assert len(sandbox.started) == 3, "a fresh one was started"
        assert all(ended(running) for running in sandbox.started[:2])
        assert list(home.iterdir()) == [blank.place.parent.parent]
        blank.close()


def test_what_waits_is_frozen_while_something_is_timed(sandbox: FakeSandbox) -> None:
    with Pool(sandbox, JOBS) as pool:
        pool.fill("sha256:b", 1)
        with pool.still():
            assert [running.history for running in sandbox.started] == [["freeze"], ["freeze"]]
        assert [running.history for running in sandbox.started] == [["freeze", "thaw"]] * 2


def test_a_container_that_ends_before_it_connects_is_our_fault(home: Path) -> None:
    says = Outcome("exited", exit_code=1, stderr=Captured(4, b"no torch"))
    blank = blanks.start(FakeSandbox({"guest": lambda job: says}), JOBS, "guest")
    with blank, pytest.raises(SandboxFault, match="no torch"):
        blank.ready(5)
    assert list(home.iterdir()) == []


def test_a_container_that_never_connects_is_waited_for_with_a_limit(home: Path) -> None:
    blank = blanks.start(FakeSandbox({"guest": lambda job: int(OVER.wait(20))}), JOBS, "guest")
    with blank, pytest.raises(SandboxFault, match="not ready within"):
        blank.ready(0.3)


def test_a_stranger_is_turned_away_and_does_no_harm(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([65534, os.getuid()])  # whom we wait for when the first comes, and the second
    monkeypatch.setattr(blanks, "_uid", lambda role: os.getuid())
    with blanks.start(sandbox, JOBS, "guest") as blank:
        monkeypatch.setattr(blanks, "_uid", lambda role: next(seen))
        late = threading.Timer(0.3, connects, [sandbox.started[0]._job])
        late.start()
        assert blank.ready(5)
        assert list(seen) == []
        late.join(0)


def test_nobody_of_the_host_passes_to_the_door(sandbox: FakeSandbox, home: Path) -> None:
    with blanks.start(sandbox, JOBS, "guest"):
        folder = next(home.iterdir())
        assert folder.stat().st_mode & 0o777 == 0o700
        assert next(folder.glob("links/*/s")).stat().st_mode & 0o777 == 0o600


def test_the_door_is_shut_behind_it(sandbox: FakeSandbox) -> None:
    with blanks.start(sandbox, JOBS, "guest") as blank:
        blank.ready(5)
        with pytest.raises(ConnectionRefusedError):
            connects(sandbox.started[0]._job)


def ended(running: FakeRunning) -> bool:
    return running._ended.is_set()
