"""Who is still there after every way to kill has been tried: the fault that says so, with what to look at.

The ladder: SIGKILL to the first process; then, as long as it is not gone, to the whole cgroup at once (`cgroup.kill`,
or each process while all are frozen); a wait with a limit; a look whether the cgroup is empty. What is left then sits
in the kernel, most likely in a driver. That is never a candidate's verdict, and nobody waits for it any longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sandbox.api import SandboxFault

SHOWN = 5


class Unkillable(SandboxFault):
    """Processes that outlived the ladder, by the host's numbers; none when only the cgroup or the engine is stuck."""

    def __init__(self, who: str, tried: str, pids: Iterable[int]) -> None:
        self.pids = tuple(sorted(pids))
        left = ", ".join(map(portrait, self.pids[:SHOWN])) or "no process in its cgroup"
        more = f" and {len(self.pids) - SHOWN} more" if len(self.pids) > SHOWN else ""
        super().__init__(f"{who}: unkillable: after {tried}: {left}{more}")


def portrait(pid: int) -> str:
    """`pid (name, state, kernel function it waits in)`, as far as the kernel says."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except OSError:
        return f"{pid} (gone since)"
    said = "".join(c if c.isprintable() else "?" for c in name)  # a candidate chooses it
    return f"{pid} ({', '.join(filter(None, (said, rest.split()[0], where)))})"
