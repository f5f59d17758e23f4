"""The machine an episode runs on: an engine, an image, a device, put together as one laboratory. Found, never assumed."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eventstore.facts import EpisodeStarted
from images.api import Image
from runner import host
from runner.exits import Unavailable, UsageError
from runner.lab import Lab
from sandbox.find import find

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Wanted:
    """What the user asked for."""

    device: Device
    engine: str = "auto"
    image: str = "host"
    guest_python: Path | None = None


@dataclass(frozen=True)
class Machine:
    """What was found."""

    lab: Lab
    engine: Literal["docker", "bwrap", "fake"]
    device: Device
    label: str
    """`cpu-interpreter`, or the GPU's name."""

    def environment(self) -> dict[str, Any]:
        """For `episode.started`: versions, engine, image, device."""
        return {
            "assay": host.program_version(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cpus": len(os.sched_getaffinity(0)),
            **self.lab.describe(),
        }


def machine(wanted: Wanted, home: Path) -> Machine:
    """Find engine, image and device. Raises SandboxUnavailable, ImageFault or Unavailable, each with the way on."""
    from runner.sandboxlab import SandboxLab

    gpu = host.gpu(wanted.device)
    sandbox = find(wanted.engine)  # type: ignore[arg-type]
    image = _image(wanted, sandbox.name, home)
    lab = SandboxLab(sandbox, image, wanted.device, gpu["uuid"] if gpu else None, warm=True)
    return Machine(lab, sandbox.name, wanted.device, gpu["name"] if gpu else "cpu-interpreter")


def same(started: EpisodeStarted, guest_python: Path | None, home: Path) -> Machine:
    """The machine that an episode began on, found again; Unavailable when it is another one now."""
    if started.engine == "fake":
        raise UsageError("this episode was made with the fake lab; nothing of it can be measured")
    image = started.environment.get("image", {})
    found = machine(Wanted(started.device, started.engine, image.get("name", "host"), guest_python), home)
    if found.label != started.device_label:
        raise Unavailable(f"the episode ran on {started.device_label}; here is {found.label}")
    if found.environment()["image"]["digest"] != image.get("digest"):
        raise Unavailable("the image is not the one that the episode began with; begin a new episode")
    return found


def _image(wanted: Wanted, engine: str, home: Path) -> Image:
    if wanted.image == "host":
        from images.host import host_image

        return host_image(host.guest_python(wanted.guest_python), docker=engine == "docker")
    from images.cpu import load

    if engine != "docker":
        raise UsageError(f"--image {wanted.image}: {engine} uses the host image; a built image needs Docker")
    return load(home, wanted.image)
