"""From SIGKILL to a typed fault: each rung of the ladder kills, and what outlives all of them is named."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from sandbox import cgroups, supervise
from sandbox.api import SandboxFault
from sandbox.bwrap import BwrapHandle
from sandbox.cgroups import Group
from sandbox.docker import DockerHandle
from sandbox.survivors import Unkillable

FREEZER = pytest.mark.skipif(os.geteuid() != 0 or cgroups.freezer() != "v1", reason="needs root and a v1 freezer")


def test_the_kernels_own_kill_is_used_where_there_is_one(tmp_path):
    for name in ("cgroup.kill", "cgroup.procs", "cgroup.freeze"):
        (tmp_path / name).write_text("")
    Group({"unified": tmp_path}).strike()
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    assert (tmp_path / "cgroup.freeze").read_text() == "0"


def test_what_stays_in_the_cgroup_is_a_fault_with_names_within_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "EMPTY_S", 0.2)
    (tmp_path / "cgroup.kill").write_text("")  # a kernel that does not do it
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    began = time.monotonic()
    with pytest.raises(Unkillable, match=rf"unkillable: after 0.2 s .*: {os.getpid()} \(.*, [A-Z]") as caught:
        Group({"unified": tmp_path}).kill()
    assert time.monotonic() - began < 2
    assert caught.value.pids == (os.getpid(),)
    assert isinstance(caught.value, SandboxFault)


def test_of_many_survivors_a_few_are_described(tmp_path):
    text = str(Unkillable("job", "much", range(10**9, 10**9 + 7)))
    assert text.count("(gone since)") == 5
    assert text.endswith(" and 2 more")


@pytest.fixture
def stuck() -> Iterator[tuple[Group, Group, int]]:
    """A group in a frozen group, with one process in it: on v1 SIGKILL does not end that."""
    outer = cgroups._parents()["freezer"] / f"assay-test-{os.getpid()}"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    parent, group = Group({"freezer": outer}), Group({"freezer": inner})
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            (inner / "cgroup.procs").write_text(str(process.pid))
            parent.freeze()
            yield parent, group, process.pid
        finally:
            parent.thaw()
            group.thaw()
            process.kill()
            process.wait(10)
            group.remove()
            parent.remove()


@FREEZER
def test_a_process_that_sigkill_does_not_end_is_a_fault_and_dies_once_it_can(stuck, monkeypatch):
    monkeypatch.setattr(cgroups, "EMPTY_S", 0.3)
    parent, group, pid = stuck
    with pytest.raises(Unkillable, match=rf"{pid} \(sleep, D") as caught:
        group.kill()
    assert caught.value.pids == (pid,)
    parent.thaw()
    group.kill()
    assert group.pids() == set()


@FREEZER
def test_a_frozen_group_is_killed_without_running_on(monkeypatch):
    group = Group({"freezer": cgroups._parents()["freezer"] / f"assay-test-frozen-{os.getpid()}"})
    group.paths()[0].mkdir()
    with subprocess.Popen(["sleep", "60"]) as process:
        (group.paths()[0] / "cgroup.procs").write_text(str(process.pid))
        group.freeze()
        try:
            group.kill()
            assert process.wait(10) == -9
        finally:
            group.thaw()  # or nobody could end it
            process.kill()
    group.remove()


@pytest.mark.sandbox
def test_when_the_first_rung_fails_the_whole_cgroup_is_killed(sandbox, job, monkeypatch, nothing_left):
    struck: list[str] = []
    whole = Group.strike

    def counted(group: Group) -> None:
        struck.append(next(iter(group.paths())).name)
        whole(group)

    # as if whoever should have been killed first were somebody else
    monkeypatch.setattr("sandbox.docker.signal.pidfd_send_signal", lambda *args: None)
    monkeypatch.setattr(Group, "strike", counted)
    monkeypatch.setattr(BwrapHandle, "strike", lambda handle: handle.group.strike())
    with sandbox.start(job("import time; time.sleep(60)")) as running:
        outcome = running.kill()
        assert (outcome.status, bool(struck)) == ("killed", True)


@pytest.mark.sandbox
def test_a_container_that_nothing_ends_is_a_fault_in_time_and_not_an_outcome(sandbox, job, monkeypatch, nothing_left):
    monkeypatch.setattr(supervise, "KILL_S", 1.5)
    rungs: list[float] = []
    running = sandbox.start(job("import time; time.sleep(60)"))
    for kind in (DockerHandle, BwrapHandle):
        monkeypatch.setattr(kind, "strike", lambda handle: rungs.append(time.monotonic()))
    began = time.monotonic()
    with pytest.raises(Unkillable, match=r"\d times SIGKILL, from the second on to its whole cgroup, in 1.5 s: \d+ \("):
        running.kill()
    assert time.monotonic() - began < 15
    assert len(rungs) >= 3
    with pytest.raises(Unkillable), running:
        pass  # leaving the block waits for the removal, which kills by the cgroup


@pytest.mark.sandbox
def test_after_a_removed_container_its_cgroup_has_nobody(sandbox, job, nothing_left):
    with sandbox.start(job("import os, time\nfor _ in range(5): os.fork()\ntime.sleep(60)")) as running:
        group = running._handle.group
        assert group.pids()
    assert group.pids() == set()
    assert not any(path.exists() for path in group.paths())
