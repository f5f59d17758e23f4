"""Counters, flag and exit code together: the six shapes of a death for memory, and everything beside it."""

from __future__ import annotations

import pytest

from sandbox.cgroups import Counters
from sandbox.supervise import Ending, classify

NONE, CALM, STARVED = Counters(), Counters(oom_kills=0, pids_refused=0), Counters(oom_kills=1, pids_refused=0)
CROWDED = Counters(oom_kills=0, pids_refused=7)


@pytest.mark.parametrize(
    ("ending", "struck", "counters", "over", "status"),
    [
        (Ending(0), None, CALM, False, "exited"),
        (Ending(3), None, CALM, False, "exited"),
        (Ending(139), None, CALM, False, "signalled"),
        (Ending(0), None, NONE, False, "exited"),
        # memory: the first process, a child of it, a flag without a counter, a counter without a flag, all gone, a peer
        (Ending(137), None, STARVED, False, "oom"),
        (Ending(0), None, STARVED, False, "oom"),
        (Ending(137, oom_flag=True), None, NONE, False, "oom"),
        (Ending(1, oom_flag=True), None, CALM, False, "oom"),
        (Ending(137), None, NONE, False, "signalled"),
        (None, "killed", STARVED, False, "oom"),
        # processes
        (Ending(1), None, CROWDED, False, "pids-limit"),
        (Ending(134), None, CROWDED, False, "pids-limit"),
        (Ending(0), None, CROWDED, False, "exited"),
        (None, "timeout", CROWDED, False, "timeout"),
        # what we did
        (None, "killed", CALM, False, "killed"),
        (None, "timeout", STARVED, False, "timeout"),
        (None, "output-limit", STARVED, False, "output-limit"),
        (Ending(0), None, CALM, True, "output-limit"),
        (None, "timeout", CALM, True, "output-limit"),
    ],
)
def test_status(ending, struck, counters, over, status):
    assert classify(ending, struck, counters, over=over) == status
