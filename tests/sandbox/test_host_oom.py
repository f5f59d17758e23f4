"""A death for memory far below the container's own cap is the machine's: our fault, never the candidate's."""

from __future__ import annotations

import os
import subprocess
import time
from types import SimpleNamespace
from typing import Any

import pytest

from images.api import Image
from sandbox.api import Job, Limits, SandboxFault
from sandbox.cgroups import Counters
from sandbox.supervise import Ending, Supervised, by_host

CAP = 512 << 20


class Killed:
    """A handle whose process is at once dead of signal 9, with counters as given."""

    container, sources, began = "none", {}, 0.0

    def __init__(self, peak: int | None) -> None:
        self.removed = False
        self.group: Any = SimpleNamespace(sample=lambda: Counters(oom_kills=1, memory_peak_bytes=peak))

    def launch(self, stdout: object, stderr: object) -> int:
        self.began = time.monotonic()
        self._process = subprocess.Popen(["/bin/sh", "-c", "kill -9 $$"])
        return os.pidfd_open(self._process.pid)

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def strike(self) -> None: ...

    def collect(self, counters: Counters) -> Ending:
        self._process.wait(10)
        return Ending(137)

    def remove(self) -> None:
        self.removed = True


def job() -> Job:
    limits = Limits(memory_bytes=CAP, wall_s=30.0)
    return Job("host-oom", "guest", ("-c", ""), Image(name="none", digest="0", python="/x"), limits=limits)


def test_killed_far_below_its_cap_is_a_fault_and_the_container_is_still_removed() -> None:
    handle = Killed(peak=CAP // 2)
    with pytest.raises(SandboxFault, match="machine's want of memory") as found, Supervised(job(), handle) as running:
        running.wait(20.0)
    assert f"{CAP // 2} of {CAP} bytes" in str(found.value)
    assert handle.removed


@pytest.mark.parametrize("peak", [CAP, CAP - (8 << 20), None])
def test_killed_at_its_cap_or_at_an_unknown_peak_is_its_own_end(peak: int | None) -> None:
    with Supervised(job(), Killed(peak)) as running:
        assert running.wait(20.0).status == "oom"


def test_the_line_is_nine_tenths_of_the_cap() -> None:
    assert by_host(Counters(memory_peak_bytes=899), 1000)
    assert not by_host(Counters(memory_peak_bytes=900), 1000)
