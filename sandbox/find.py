"""Which engine this host offers, and for the doctor: what each would need.

Docker is the default when a daemon answers, bubblewrap the embedded one when none does. There is no third way: with neither, the
caller gets one line that says what to install.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox import cgroups, gpu, host, seccomp
from sandbox.api import Sandbox, SandboxUnavailable
from sandbox.bwrap import BwrapSandbox
from sandbox.docker import DockerSandbox, connect

Engine = Literal["auto", "docker", "bwrap"]


@dataclass(frozen=True)
class Check:
    """One fact about this host."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """What to do about it; empty when it is well."""


def find(engine: Engine = "auto") -> Sandbox:
    """The engine asked for, or the first that works. Raises SandboxUnavailable with one line for each that does not."""
    makers: dict[str, Callable[[], Sandbox]] = {"docker": DockerSandbox, "bwrap": BwrapSandbox}
    wanted = list(makers) if engine == "auto" else [engine]
    problems = []
    for name in wanted:
        try:
            return makers[name]()
        except SandboxUnavailable as problem:
            problems.append(str(problem))
    raise SandboxUnavailable("no sandbox on this host: " + "; or ".join(problems))


def probe() -> list[Check]:
    """What this host can do, each with the fix. Starts nothing and changes nothing that stays."""
    return [_root(), _docker(), _bwrap(), _cgroups(), _freezer(), _seccomp(), *_gpus()]


def _root() -> Check:
    uid = os.geteuid()
    return Check(
        "root", uid == 0, f"uid {uid}", "" if uid == 0 else "bubblewrap jobs need root; Docker needs its socket"
    )


def _docker() -> Check:
    try:
        with closing(connect()) as api:
            version = api.version()
    except SandboxUnavailable as problem:
        return Check("docker", False, "no daemon answers", str(problem))
    return Check("docker", True, f"engine {version['Version']}, API {version['ApiVersion']}")


def _bwrap() -> Check:
    try:
        said = BwrapSandbox().describe()
    except SandboxUnavailable as problem:
        return Check("bwrap", False, host.bwrap_path() or "not installed", str(problem))
    return Check("bwrap", True, f"bubblewrap {said['version']}")


def _cgroups() -> Check:
    try:
        controllers = cgroups.writable()
    except SandboxUnavailable as problem:
        return Check("cgroups", False, cgroups.kind(), str(problem))
    return Check("cgroups", True, f"{cgroups.kind()}: {', '.join(controllers)}")


def _freezer() -> Check:
    which = cgroups.freezer()
    fix = "" if which != "none" else "arms cannot be frozen while another is timed: mount a cgroup freezer"
    return Check("freezer", which != "none", which, fix)


def _seccomp() -> Check:
    try:
        program = seccomp.bpf_program()
    except SandboxUnavailable as problem:
        return Check("seccomp", False, "no libseccomp", str(problem))
    return Check("seccomp", True, f"{len(program) // 8} instructions, profile {seccomp.digest()[:19]}")


def _gpus() -> list[Check]:
    version = gpu.driver_version()
    if version is None:
        return [Check("gpu", False, "no NVIDIA driver", "use --device cpu, or install the driver")]
    checks = [Check("driver", True, version)]
    for uuid in gpu.minors():
        missing = [node for node in gpu.nodes(uuid) if not Path(node).exists()]
        fix = f"device nodes missing: {', '.join(missing)} (run nvidia-modprobe -u -c 0)" if missing else ""
        checks.append(Check(f"gpu {uuid}", not missing, ", ".join(gpu.nodes(uuid)), fix))
    return checks
