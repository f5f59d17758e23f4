"""What killed runners left on this host, found and removed on request: `assay sandbox gc`.

Only what names an owner of ours that is dead. A container or cgroup carries `boot id:pid namespace:pid:start time` of its
runner, so a number that was given again is not taken for the old one. A runner of another pid namespace cannot be looked at from
here: its containers go only when their own deadline is long over, its cgroups never. Nothing else is ever touched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing

import docker
import requests

from sandbox import host
from sandbox.api import SandboxFault, SandboxUnavailable
from sandbox.bwrap import dead_groups
from sandbox.docker import OWNER, connect
from sandbox.policy import LABEL

OVERDUE_S = 600.0
"""A runner ends its containers at their deadline. One so long over it has no runner that works."""


def containers() -> tuple[list[str], list[str]]:
    """Remove abandoned Docker containers: those removed, and those that could not be (`name: why`). Nothing without a daemon."""
    removed: list[str] = []
    kept: list[str] = []
    try:
        api = connect()
    except SandboxUnavailable:
        return removed, kept
    with closing(api):
        for found in api.containers(all=True, filters={"label": OWNER}):
            name = found["Names"][0].lstrip("/")
            if not abandoned(found["Labels"], time.time()):
                continue
            try:
                api.remove_container(found["Id"], force=True, v=True)
            except docker.errors.NotFound:
                continue  # somebody else was faster
            except (docker.errors.DockerException, requests.RequestException) as error:
                kept.append(f"container {name}: {error}")
            else:
                removed.append(f"container {name}")
    return removed, kept


def groups() -> tuple[list[str], list[str]]:
    """Remove abandoned cgroups with whatever is still in them; as `containers`."""
    removed: list[str] = []
    kept: list[str] = []
    for name, group in dead_groups():
        try:
            group.remove()
        except (SandboxFault, OSError) as error:
            kept.append(f"cgroup {name}: {error}")
        else:
            removed.append(f"cgroup {name}")
    return removed, kept


def abandoned(labels: Mapping[str, str], now: float) -> bool:
    """Whether a container with these labels has nobody who looks after it. `now` in Unix time."""
    owner = labels.get(OWNER, "")
    if not owner:
        return False
    if not host.alive(owner):
        return True
    deadline = labels.get(f"{LABEL}.deadline", "")
    stranger = owner.split(":")[1] != host.owner(os.getpid()).split(":")[1]
    return stranger and deadline.isdigit() and now > int(deadline) + OVERDUE_S
