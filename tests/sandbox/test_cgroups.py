"""Counters and caps as cgroup v2 writes them (this may be a v1 machine: a folder stands in), and groups on the real one."""

from __future__ import annotations

import os

import pytest

from sandbox import cgroups
from sandbox.api import Limits, SandboxFault
from sandbox.cgroups import Counters, Group


@pytest.fixture
def v2(tmp_path):
    for name, text in {
        "memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\noom_group_kill 0\n",
        "pids.events": "max 5\n",
        "memory.peak": "1048576\n",
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        "memory.swap.max": "max\n",
        "cgroup.events": "populated 1\nfrozen 1\n",
        "cgroup.procs": "",
    }.items():
        (tmp_path / name).write_text(text)
    return Group({"unified": tmp_path})


def test_v2_counters_are_read(v2):
    assert v2.sample() == Counters(oom_kills=2, pids_refused=5, memory_peak_bytes=1 << 20, cpu_s=2.5)


def test_v1_counters_are_read(tmp_path):
    files = {
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "pids.events": "max 4\n",
        "memory.max_usage_in_bytes": "4096\n",
        "cpuacct.usage": "1500000000\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    group = Group(dict.fromkeys(("memory", "pids", "cpuacct"), tmp_path))
    assert group.sample() == Counters(oom_kills=3, pids_refused=4, memory_peak_bytes=4096, cpu_s=1.5)


def test_v2_caps_are_written(v2, tmp_path):
    v2._cap(Limits(memory_bytes=1 << 20, pids=9, cpus=(0, 2)))
    written = {
        name: (tmp_path / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max", "cpuset.cpus")
    }
    assert written == {"memory.max": str(1 << 20), "memory.swap.max": "0", "pids.max": "9", "cpuset.cpus": "0,2"}


def test_v2_freezer_waits_for_the_kernel_and_gives_up(v2, tmp_path, monkeypatch):
    v2.freeze()
    assert (tmp_path / "cgroup.freeze").read_text() == "1"
    v2.thaw()
    assert (tmp_path / "cgroup.freeze").read_text() == "0"
    monkeypatch.setattr(cgroups, "FREEZE_S", 0.05)
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    with pytest.raises(SandboxFault, match="did not freeze"):
        v2.freeze()
    assert (tmp_path / "cgroup.freeze").read_text() == "0"


def test_a_group_that_is_gone_has_no_counters_and_thaws_in_silence(tmp_path):
    gone = Group(dict.fromkeys(("memory", "pids", "cpuacct", "freezer"), tmp_path / "gone"))
    assert gone.sample() == Counters()
    gone.thaw()
    with pytest.raises(FileNotFoundError):
        gone.freeze()


def test_a_missing_reading_is_completed_by_an_earlier_one():
    late, early = Counters(oom_kills=1), Counters(oom_kills=0, pids_refused=2)
    assert late.or_else(early) == Counters(oom_kills=1, pids_refused=2)


def test_the_group_of_a_process_that_is_gone_is_empty():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert Group.of_pid(pid) == Group({})


@pytest.mark.sandbox
def test_a_group_is_made_capped_and_removed_on_this_machine():
    group = Group.create(f"assay.test.{os.getpid()}", Limits(memory_bytes=64 << 20, pids=7))
    try:
        assert all(path.is_dir() for path in group.paths())
        pids = (group.dirs.get("pids") or group.dirs["unified"]) / "pids.max"
        assert pids.read_text() == "7\n"
        with pytest.raises(SandboxFault, match="File exists"):
            Group.create(f"assay.test.{os.getpid()}", Limits())
    finally:
        group.remove()
    assert not any(path.exists() for path in group.paths())
