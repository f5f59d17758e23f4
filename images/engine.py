"""The local Docker daemon, as images and the sandbox reach it: every request has a limit, a silent daemon is one clear line."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from images.api import ImageFault

if TYPE_CHECKING:
    import docker

CALL_S = 60
"""Longest that one ordinary request may take."""
SOCKET = "unix:///var/run/docker.sock"


def connect(timeout_s: int = CALL_S) -> docker.APIClient:
    """A client of the daemon; the caller closes it. Raises ImageFault when none answers."""
    import docker  # bubblewrap alone needs none of it

    if daemon_pid() is None:  # docker-py would leave a socket open
        raise ImageFault("Docker: no daemon answers; start dockerd (apt-get install docker.io)")
    try:
        return docker.APIClient(base_url=os.environ.get("DOCKER_HOST"), timeout=timeout_s)
    except docker.errors.DockerException as error:
        raise ImageFault(f"Docker: the daemon does not answer as it should: {error}") from error


def daemon_pid() -> int | None:
    """Who listens on the daemon's socket (1: systemd, in its place). None: nobody, or it is not a local socket."""
    url = urlparse(os.environ.get("DOCKER_HOST") or SOCKET)
    if url.scheme != "unix":
        return None
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(2.0)
        try:
            link.connect(url.path)
        except OSError:
            return None
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(pid) or None


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Docker's errors become ours, with one line of what was being done."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageFault(f"{what}: {error}") from error


def image_id(client: docker.APIClient, name: str) -> str:
    """The ID behind a name or an ID. Raises docker's NotFound."""
    described: dict[str, Any] = client.inspect_image(name)  # type: ignore[no-untyped-call]
    return str(described["Id"])
