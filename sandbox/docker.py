"""Docker as an engine, through docker-py's low-level client; the daemon must be a local one (folders are bind-mounted).

The life of a container is create, attach, start, end, remove, each by its id, with the output read from the attach
stream as it comes (the log driver is `none`). Its end is seen on the pidfd of its first process and it is killed by a
signal to that, both without the daemon: a busy daemon delays a start or a removal, never a wall-clock limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal

import docker
import requests

from images import engine
from images.api import ImageFault
from sandbox import canary, cgroups, host, policy, seccomp
from sandbox.api import Job, Outcome, SandboxFault, SandboxUnavailable
from sandbox.capture import Capture, Frames
from sandbox.cgroups import Counters, Group
from sandbox.supervise import Ending, Supervised

GONE_S = 20
OWNER = f"{policy.LABEL}.owner"
TROUBLE = (docker.errors.DockerException, requests.RequestException)


class DockerSandbox:
    """Starts jobs in Docker containers. Raises SandboxUnavailable where no daemon answers."""

    name: Literal["docker", "bwrap", "fake"] = "docker"

    def __init__(self) -> None:
        with closing(connect()) as api:
            self._version: Mapping[str, Any] = api.version()
            self._info: Mapping[str, Any] = api.info()
        daemon = engine.daemon_pid()
        self._daemon = None if daemon == 1 else daemon  # systemd, which listens in the daemon's place
        self.reap()

    def start(self, job: Job) -> Supervised:
        job = host.settled(job)
        here = host.current(self._daemon)
        config = policy.docker_config(job, here)
        return Supervised(job, DockerHandle(job.name, config, canary.Gate(job, here)))

    def run(self, job: Job) -> Outcome:
        with self.start(job) as running:
            return running.wait(job.limits.wall_s)

    def describe(self) -> dict[str, str]:
        parts = {part["Name"]: part["Version"] for part in self._version.get("Components", [])}
        return {
            "engine": "docker",
            "version": str(self._version["Version"]),
            "api": str(self._version["ApiVersion"]),
            "runc": parts.get("runc", "unknown"),
            "cgroup": f"{cgroups.kind()}; daemon v{self._info.get('CgroupVersion', '1')} {self._info['CgroupDriver']}",
            "freezer": cgroups.freezer(),
            "seccomp": seccomp.digest(),
            "canary": canary.digest(),
            "tmp_inodes": "capped",
            "security": ",".join(self._info.get("SecurityOptions") or []),
        }

    def reap(self) -> list[str]:
        """Remove containers whose runner is dead (killed before it could): only ours, never one that somebody owns."""
        reaped = []
        with closing(connect()) as api:
            for found in api.containers(all=True, filters={"label": OWNER}):
                if not host.alive(found["Labels"][OWNER]):
                    _remove(api, found["Id"])
                    reaped.append(found["Names"][0].lstrip("/"))
        return reaped


def connect() -> docker.APIClient:
    """The local daemon. Raises SandboxUnavailable. The caller closes it."""
    try:
        return engine.connect()
    except ImageFault as fault:
        raise SandboxUnavailable(str(fault)) from fault


class DockerHandle:
    """One container. Its own client: a session is not shared between threads."""

    def __init__(self, name: str, config: Mapping[str, Any], gate: canary.Gate) -> None:
        self._name = name
        self._config = config
        self._gate = gate
        self._api = connect()
        self._socket: Any = None
        self._pidfd: int | None = None
        self._struck = False
        self.container = ""
        self.began = 0.0
        self.group = Group({})
        self.sources: Mapping[int, Callable[[bytes], None]] = {}

    def launch(self, stdout: Capture, stderr: Capture) -> int:
        try:
            made = self._api.create_container(
                **self._config["create"], host_config=self._api.create_host_config(**self._config["host"])
            )
            self.container = made["Id"]
            self._socket = self._api.attach_socket(self.container, params={"stdout": 1, "stderr": 1, "stream": 1})
            self._api.start(self.container)
            pid = int(self._api.inspect_container(self.container)["State"]["Pid"])
        except TROUBLE as error:
            raise SandboxFault(f"{self._name}: Docker: {error}") from error
        self.sources = {self._socket.fileno(): Frames({1: self._gate.feed, 2: stderr.feed}).feed}
        self._pidfd = self._follow(pid)
        _hurry()
        self.began = self._gate.open(self.group, lambda: self._pump(stderr), stdout.feed)
        return os.dup(self._pidfd)

    def _follow(self, pid: int) -> int:
        """The pidfd of the container's init, and its cgroups."""
        try:
            pidfd = os.pidfd_open(pid)
        except (OSError, ValueError) as error:
            raise SandboxFault(
                f"{self._name}: ended before its limits were known, or its daemon is a remote one"
            ) from error
        # only its own: this group is killed in the end, and one that has ended is listed in the root
        found = Group.of_pid(pid).dirs
        self.group = Group({name: path for name, path in found.items() if self.container in str(path)})
        if not self.group.dirs and not _ended(pidfd):
            os.close(pidfd)
            raise SandboxFault(
                f"{self._name}: process {pid} is not in container {self.container[:12]} (a remote daemon?)"
            )
        return pidfd

    def _pump(self, stderr: Capture) -> None:
        """Read what has come. Raises SandboxFault when it ended before its limits were known."""
        assert self._pidfd is not None
        if not canary.pump(self.sources) and _ended(self._pidfd):
            raise SandboxFault(f"{self._name}: ended before its limits were known: {stderr.captured().text()[:500]}")

    def freeze(self) -> None:
        try:
            self.group.freeze()
        except PermissionError:  # a cgroup mount that only the daemon may write
            self._pause("pause")

    def thaw(self) -> None:
        try:
            self.group.thaw()
        except PermissionError:
            self._pause("unpause")

    def _pause(self, how: Literal["pause", "unpause"]) -> None:
        with closing(connect()) as api:
            try:
                getattr(api, how)(self.container)
            except docker.errors.APIError as error:
                if not _is_so(api, self.container, paused=how == "pause"):
                    raise SandboxFault(f"{self._name}: docker {how}: {error}") from error

    def strike(self) -> None:
        """First its init, with which the kernel kills all of its pid namespace. The second time, the whole cgroup."""
        assert self._pidfd is not None
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._struck:
            self.group.strike()
        self._struck = True

    def collect(self, counters: Counters) -> Ending:
        try:
            code = self._api.wait(self.container, timeout=GONE_S)["StatusCode"]
            state = self._api.inspect_container(self.container)["State"]
        except TROUBLE as error:
            raise SandboxFault(f"{self._name}: Docker did not say how it ended: {error}") from error
        return Ending(int(code), oom_flag=bool(state["OOMKilled"]))

    def remove(self) -> None:
        try:
            if self._socket is not None:
                self._socket._response.close()
                self._socket.close()
            if self._pidfd is not None:
                os.close(self._pidfd)
            self.group.kill()  # whoever is left would make the daemon wait
            if self.container:
                _remove(self._api, self.container)
        finally:
            self._api.close()


def _remove(api: docker.APIClient, container: str) -> None:
    """Gone when this returns. Raises SandboxFault after GONE_S: a device or a mount may still be busy."""
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            api.remove_container(container, force=True, v=True)
        except docker.errors.NotFound:
            return
        except TROUBLE as error:  # "already in progress", "device or resource busy"
            if time.monotonic() > deadline:
                raise SandboxFault(f"container {container[:12]} cannot be removed: {error}") from error
            time.sleep(0.1)
        else:
            return


def _hurry() -> None:
    """This thread runs before all others when it wakes: the engine removes a dead container's counters in milliseconds.

    Measured on a machine with five times more to do than it has cores: lost in 9 of 30 runs without, in 0 of 60 with it.
    """
    with contextlib.suppress(PermissionError):
        policy_and_reset = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(threading.get_native_id(), policy_and_reset, os.sched_param(1))


def _ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def _is_so(api: docker.APIClient, container: str, *, paused: bool) -> bool:
    """Whether it already is as wished, or has ended and needs nothing."""
    try:
        state = api.inspect_container(container)["State"]
    except docker.errors.NotFound:
        return True
    return not state["Running"] or bool(state["Paused"]) == paused
