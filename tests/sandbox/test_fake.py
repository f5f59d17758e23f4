"""The fake keeps the contract that callers rely on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from images.api import Image
from sandbox.api import Captured, Job, Limits, Outcome, SandboxFault
from sandbox.fake import FakeSandbox
from sandbox.policy import JobRefused

JOB = Job("assay-fake", "guest", ("x",), Image("none", "sha256:0", "/python"), limits=Limits(wall_s=5))


def test_a_number_is_an_exit_code_and_an_outcome_is_itself():
    own = Outcome(status="oom", signal=9, wall_s=1.5)
    fake = FakeSandbox({"guest": lambda job: 3, "judge": lambda job: own})
    ended = fake.run(JOB)
    assert ended == Outcome(status="exited", exit_code=3, wall_s=ended.wall_s, container="fake-assay-fake")
    assert fake.run(replace(JOB, role="judge")) == own


def test_an_exception_is_the_programs_death_and_a_fault_is_ours():
    def breaks(job):
        raise ValueError("bad")

    def faults(job):
        raise SandboxFault("engine gone")

    ended = FakeSandbox({"guest": breaks}).run(JOB)
    assert (ended.status, ended.exit_code, ended.stderr) == ("exited", 1, Captured(16, b"ValueError: bad\n"))
    with pytest.raises(SandboxFault, match="engine gone"):
        FakeSandbox({"guest": faults}).run(JOB)
    with pytest.raises(SandboxFault, match="no program for role judge"):
        FakeSandbox({}).run(replace(JOB, role="judge"))


def test_the_wall_clock_wait_and_kill_end_it():
    stop = threading.Event()
    fake = FakeSandbox({"guest": lambda job: int(stop.wait(30))})
    with fake.start(replace(JOB, limits=Limits(wall_s=0.1))) as running:
        time.sleep(0.3)
        assert running.poll().status == "timeout"
    with fake.start(JOB) as running:
        assert running.poll() is None
        assert running.wait(0.05).status == "timeout"
    with fake.start(JOB) as running:
        first = running.kill()
        assert (first.status, running.kill(), running.poll()) == ("killed", first, first)
    with fake.start(JOB) as running:
        pass
    assert running.poll().status == "killed"
    stop.set()


def test_freezing_is_recorded():
    fake = FakeSandbox({"guest": lambda job: 0})
    with fake.start(JOB) as running:
        running.freeze()
        running.thaw()
        running.wait(5)
    assert (running.history, fake.started) == (["freeze", "thaw"], [running])


def test_what_policy_refuses_the_fake_refuses():
    with pytest.raises(JobRefused):
        FakeSandbox({"guest": lambda job: 0}).run(replace(JOB, uid=0))


def test_it_says_that_it_isolates_nothing():
    assert FakeSandbox({}).describe() == {"engine": "fake", "isolation": "none"}
