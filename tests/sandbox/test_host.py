"""Who owns a container: named so that a reaper never takes a stranger's run for a dead runner's leavings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandbox import host

NAME_ITSELF = "import os; from sandbox import host; print(host.owner(os.getpid()))"


def test_a_process_is_alive_until_it_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    who = host.owner(child.pid)
    assert host.alive(who)
    child.communicate(b"\n")
    assert not host.alive(who)


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    boot, space, pid, started = host.owner(os.getpid()).split(":")
    assert host.alive(f"{boot}:{space}:{pid}:{started}")
    assert not host.alive(f"{boot}:{space}:{pid}:{int(started) + 1}")
    assert not host.alive(f"another-boot:{space}:{pid}:{started}")
    assert not host.alive("nonsense")


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make a pid namespace")
def test_a_process_of_another_pid_namespace_is_left_alone_even_when_its_number_is_nobody_here() -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", NAME_ITSELF]
    who = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    assert who.split(":")[1] != host.owner(os.getpid()).split(":")[1]
    assert host.alive(who)
