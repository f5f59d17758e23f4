"""Whether an engine's limits are in force here, asked by one empty job: for the doctor, before anybody's program comes.

Each job proves its own limits in the same way (`sandbox.canary`); this only asks early.
"""

from __future__ import annotations

import os
from uuid import uuid4

from images.api import Image
from sandbox.api import Job, Limits, Sandbox, SandboxFault

WALL_S = 20.0


def prove(sandbox: Sandbox, image: Image) -> str:
    """Run one empty job in a full set of limits. Empty when all of them hold, else one line that names what does not."""
    job = Job(
        name=f"assay-proof-{uuid4().hex[:12]}",
        role="guest",
        argv=("-I", "-S", "-c", ""),
        image=image,
        limits=Limits(wall_s=WALL_S, cpus=(min(os.sched_getaffinity(0)),)),
    )
    try:
        outcome = sandbox.run(job)
    except SandboxFault as fault:
        return str(fault)
    return "" if outcome.exit_code == 0 else f"an empty job ended with status {outcome.status}"
