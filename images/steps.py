"""The steps that a build is made of: a program on the host, or a command of ours in a container without network.

Each has a limit, and each failure is one line: the last words of what failed.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from images.api import ImageFault

if TYPE_CHECKING:
    import docker
    from docker.types import Mount

LONG_S = 1800
"""Longest for a bootstrap, a download, an installation or a commit."""


def command(argv: list[str]) -> None:
    """Run a program of the host to its end. Raises ImageFault when it is absent, too slow, or fails."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG_S, check=False
        )
    except FileNotFoundError as error:
        raise ImageFault(f"{argv[0]} is not installed (apt-get install {argv[0]})") from error
    except subprocess.TimeoutExpired as error:
        raise ImageFault(f"{argv[0]} took longer than {LONG_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ImageFault(f"{Path(argv[0]).name} failed ({done.returncode}): {lines[-1] if lines else 'no message'}")


def run(client: docker.APIClient, image: str, argv: list[str]) -> str:
    """What a short command of ours prints inside an image. Raises ImageFault when it fails."""
    container = create(client, image, argv)
    try:
        return finish(client, container)
    finally:
        client.remove_container(container, force=True, v=True)


def create(client: docker.APIClient, image: str, argv: list[str], mounts: list[Mount] | None = None) -> str:
    """A container without network and without capabilities, not started; its ID."""
    config = client.create_host_config(
        network_mode="none", cap_drop=["ALL"], security_opt=["no-new-privileges:true"], init=True, mounts=mounts
    )
    return str(client.create_container(image, argv, host_config=config, use_config_proxy=False)["Id"])


def finish(client: docker.APIClient, container: str) -> str:
    """Start a container and wait; what it printed. Raises ImageFault with its last line when it fails."""
    client.start(container)
    code = int(client.wait(container, timeout=LONG_S)["StatusCode"])
    said = client.logs(container, stdout=True, stderr=bool(code), tail=50).decode("utf-8", "backslashreplace")
    if code:
        lines = [line for line in said.splitlines() if line.strip()]
        raise ImageFault(f"a build step failed ({code}): {lines[-1] if lines else 'no message'}")
    return said


def sha256(path: Path) -> str:
    """64 hexadecimal digits, of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
