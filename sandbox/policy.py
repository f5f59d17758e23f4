"""From a job to the exact arguments of its container, for both engines: pure, so that a golden file can pin it.

Deny by default. Every permission that a container has is written here, once, and nothing in a `Job` can add another:
what a caller may vary is the program, caps, folders under narrow rules, listed environment names, and one GPU. What
the host offers (hard limits, device nodes, the time) comes in as a value, `Host`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sandbox import seccomp
from sandbox.api import Job, SandboxError

LABEL = "assay"
"""Prefix of every label we put on a container, and value of none."""

IMAGE_ENV = frozenset({"PATH", "LD_LIBRARY_PATH"})
"""Names that only an image may set: they decide which code is loaded."""

ALLOWED_ENV = frozenset(
    """
    LANG LC_ALL TZ HOME TMPDIR XDG_CACHE_HOME TRITON_CACHE_DIR TRITON_HOME TRITON_INTERPRET TRITON_DEFAULT_FP_FUSION
    TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS CUDA_CACHE_PATH CUDA_MODULE_LOADING CUDA_LAUNCH_BLOCKING
    CUBLAS_WORKSPACE_CONFIG OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS OMP_WAIT_POLICY
    PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONUNBUFFERED PYTHONFAULTHANDLER
    """.split()  # noqa: SIM905  # a list to be read, not typed
)
"""Names that a job may set. No LD_*, no PYTHONPATH, no name that makes Triton or CUDA load or replace code."""

DEFAULT_ENV: Mapping[str, str] = {
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": "/tmp/cache",
    "TRITON_CACHE_DIR": "/tmp/triton",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
    "CUDA_CACHE_PATH": "/tmp/cuda",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}

CLOSED_TREES = ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/boot", "/var/lib/docker", "/var/lib/containerd")
"""Nothing at or below these is ever mounted for a job: kernel interfaces, service sockets, host configuration."""
SYSTEM_FOLDERS = ("/usr", "/opt", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
IMAGE_FILES = ("/etc/ld.so.cache",)
"""The only host configuration that an image may show: which library lies where."""
TAKEN_TARGETS = ("/proc", "/sys", "/dev", "/tmp", "/etc", "/canary.py", *SYSTEM_FOLDERS)

JOIN = """set -eu
[ "$PPID" = "$1" ]; shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done
shift
echo 1000 > /proc/self/oom_score_adj
exec "$@"
"""
"""Enters the cgroups between fork and exec: a thread-safe place that Python's own fork does not offer. It begins with
the parent-death signal already set, and ends at once if the parent died before that: no job runs without its runner."""

PRIVATE_MOUNTS = ("/usr/bin/unshare", "--mount", "--propagation", "private", "--")
MAKE_TMP = 'mount -t tmpfs -o "$0" tmpfs /run && exec "$@"'
"""Mounts what will be /tmp inside, since bubblewrap cannot cap inodes: in a mount namespace of its own, with which it
vanishes, and over /run, of which no job is ever shown anything (`CLOSED_TREES`)."""


CANARY = "/canary.py"
"""The program that each container runs first, from a read-only bind of ours (see `sandbox.canary`)."""
CANARY_FLAGS = ("-I", "-S", "-E", CANARY)


class JobRefused(SandboxError):
    """The job asks for something that no container gets. A mistake of the caller, found before anything starts."""


@dataclass(frozen=True)
class Host:
    """What the host offers and what time it is: all that the arguments depend on besides the job."""

    owner: str = ""
    """Who started it: boot id, pid and start time of this process, so that a reaper knows what nobody owns any more."""
    now: float = 0.0
    """Unix time."""
    open_files_max: int = 1024
    """Hard limits of whoever starts containers; without CAP_SYS_RESOURCE nothing above them can be asked for."""
    memlock_max: int = 8 << 20
    file_max: int = -1
    links: tuple[tuple[str, str], ...] = ()
    """Top-level symbolic links of a merged /usr: `(("/bin", "usr/bin"), ...)`."""
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUID -> device nodes."""
    bwrap: str = "/usr/bin/bwrap"
    canary: str = "/usr/share/assay/canary.py"
    """Where our own first program lies on the host."""


# --- what both engines share ------------------------------------------------------------------------------------------


def check(job: Job) -> None:
    """Refuse what no container gets. Raises JobRefused with one line."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,120}", job.name):
        raise JobRefused(f"job name {job.name!r}: only a-z, 0-9 and '-'")
    if not 0 < job.uid < 1 << 31:
        raise JobRefused(f"uid {job.uid}: a container never runs as root")
    if not job.image.python.startswith("/"):
        raise JobRefused(f"interpreter {job.image.python!r} is not an absolute path")
    for text in (job.image.python, *job.argv, *environment(job).values()):
        if "\0" in text:
            raise JobRefused("NUL byte in an argument or environment value")
    _check_limits(job)
    for bind in job.image.binds:
        _check_image_source(str(bind.source))
    targets = {bind.target for bind in job.image.binds}
    for mount in job.mounts:
        if mount.writable and job.role != "judge":
            raise JobRefused(
                f"mount target {mount.target}: a {job.role} writes nothing on the host (its disk has no cap)"
            )
        _check_source(str(mount.source))
        _check_target(mount.target, targets)
        targets.add(mount.target)


def environment(job: Job) -> dict[str, str]:
    """The whole environment inside, defaults first. Raises JobRefused for a name that is not on the list."""
    if refused := sorted(set(job.env) - ALLOWED_ENV):
        raise JobRefused(f"environment names not allowed: {', '.join(refused)}")
    if refused := sorted(set(job.image.env) - IMAGE_ENV):
        raise JobRefused(f"environment names an image may not set: {', '.join(refused)}")
    return {"PATH": "/usr/bin:/bin", **job.image.env, **DEFAULT_ENV, **job.env}


def gpu_nodes(job: Job, host: Host) -> tuple[str, ...]:
    if job.gpu is None:
        return ()
    if job.gpu not in host.gpus:
        raise JobRefused(f"no GPU {job.gpu} on this host (known: {', '.join(host.gpus) or 'none'})")
    return host.gpus[job.gpu]


def resource_limits(job: Job, host: Host) -> dict[str, int]:
    """rlimits, soft = hard, never above what the engine may set. Not the address space: CUDA reserves terabytes."""
    return {
        "nofile": _capped(job.limits.open_files, host.open_files_max),
        "core": 0,
        "fsize": _capped(job.limits.file_bytes, host.file_max),
        "memlock": _capped(job.limits.memory_bytes, host.memlock_max),
    }


def _tmp_options(job: Job) -> str:
    return f"nosuid,nodev,size={job.limits.tmp_bytes},nr_inodes={job.limits.tmp_inodes},mode=1777"


def _capped(wanted: int, most: int) -> int:
    return wanted if most < 0 else min(wanted, most)


def _check_limits(job: Job) -> None:
    for name, value in job.limits.__dict__.items():
        numbers = [n + 1 for n in value] if name == "cpus" else [value]
        if any(not math.isfinite(n) or n <= 0 for n in numbers):
            raise JobRefused(f"limit {name}={value!r}: every cap is a positive finite number")


def _check_source(source: str) -> None:
    path = _plain(source, "mount source")
    if len(path.parts) < 3 or _within(path, CLOSED_TREES) or any(part.endswith(".sock") for part in path.parts):
        raise JobRefused(f"mount source {source} is never shown to a container")


def _check_image_source(source: str) -> None:
    if source not in SYSTEM_FOLDERS and source not in IMAGE_FILES:
        _check_source(source)


def _check_target(target: str, taken: set[str]) -> None:
    path = _plain(target, "mount target")
    if len(path.parts) < 2 or _within(path, TAKEN_TARGETS):
        raise JobRefused(f"mount target {target} belongs to the container itself")
    for other in taken:
        if _within(path, (other,)) or _within(PurePosixPath(other), (target,)):
            raise JobRefused(f"mount target {target} overlaps {other}")


def _plain(text: str, what: str) -> PurePosixPath:
    # a ':' or ',' would mean something to an engine's own syntax
    if (
        not text.startswith("/")
        or os.path.normpath(text) != text
        or text.startswith("//")
        or re.search(r"[\0\n:,]", text)
    ):
        raise JobRefused(f"{what} {text!r} is not a plain absolute path")
    return PurePosixPath(text)


def _within(path: PurePosixPath, trees: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(tree) for tree in trees)


# --- Docker -----------------------------------------------------------------------------------------------------------


def docker_config(job: Job, host: Host) -> dict[str, Any]:
    """`{"create": arguments of create_container, "host": arguments of create_host_config}`, by docker-py's names."""
    check(job)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", job.image.engine_ref or ""):
        raise JobRefused(f"image {job.image.name}: Docker needs an image ID, not {job.image.engine_ref!r}")
    limits, nodes = job.limits, gpu_nodes(job, host)
    return {
        "create": {
            "image": job.image.engine_ref,
            "entrypoint": [job.image.python, *CANARY_FLAGS, job.image.python],
            "command": list(job.argv),
            "name": job.name,
            "user": f"{job.uid}:{job.uid}",
            "environment": environment(job),
            "working_dir": "/tmp",
            "hostname": "sandbox",
            "labels": {
                f"{LABEL}.owner": host.owner,
                f"{LABEL}.deadline": str(int(host.now + limits.wall_s)),
                f"{LABEL}.job": job.name,
                f"{LABEL}.role": job.role,
            },
            "stdin_open": False,
            "tty": False,
            "use_config_proxy": False,  # docker-py would copy proxy variables of the host, with their credentials
        },
        "host": {
            "auto_remove": False,  # a daemon restart would remove the container with its exit code
            "cap_drop": ["ALL"],
            "cgroupns": "private",
            "cpuset_cpus": ",".join(map(str, limits.cpus)) or None,
            "devices": [f"{node}:{node}:rw" for node in nodes],
            "init": True,
            "ipc_mode": "private",
            "log_config": {"Type": "none", "Config": {}},
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,  # equal to mem_limit: no swap
            "mounts": list(_docker_mounts(job, host)),
            "network_mode": "none",
            "oom_score_adj": 1000,
            "pids_limit": limits.pids,
            "privileged": False,
            "read_only": True,
            "security_opt": ["no-new-privileges:true", f"seccomp={seccomp.docker_json()}"],
            "shm_size": limits.shm_bytes,
            # without `exec` Docker adds noexec, and Triton's launcher stub cannot be mapped
            "tmpfs": {"/tmp": f"rw,exec,{_tmp_options(job)}"},
            "ulimits": [{"Name": n, "Soft": v, "Hard": v} for n, v in resource_limits(job, host).items()],
        },
    }


def _docker_mounts(job: Job, host: Host) -> Iterator[dict[str, Any]]:
    shown = [(host.canary, CANARY, False)]
    shown += [(str(b.source), b.target, False) for b in job.image.binds]
    for source, target, writable in shown + [(str(m.source), m.target, m.writable) for m in job.mounts]:
        yield {
            "Type": "bind",
            "Source": source,
            "Target": target,
            "ReadOnly": not writable,
            "BindOptions": {"Propagation": "rprivate"},
        }


# --- bubblewrap -------------------------------------------------------------------------------------------------------


def bwrap_argv(
    job: Job, host: Host, *, parent: int, groups: tuple[str, ...], seccomp_fd: int, status_fd: int
) -> list[str]:
    """The whole command line: join the cgroups, make /tmp, empty the environment, set rlimits, bwrap, drop to the uid, run."""
    check(job)
    if not any(bind.target == "/usr" for bind in job.image.binds):
        raise JobRefused(
            f"image {job.image.name}: bubblewrap runs host images only (it has no root filesystem of its own)"
        )
    rlimits = [f"--{name}={value}:{value}" for name, value in resource_limits(job, host).items()]
    return [
        *("/usr/bin/setpriv", "--pdeathsig", "KILL", "--"),
        *("/bin/sh", "-c", JOIN, "join", str(parent), *groups, "--"),
        *(*PRIVATE_MOUNTS, "/bin/sh", "-c", MAKE_TMP, _tmp_options(job)),
        *("env", "-i", "PATH=/usr/bin:/bin", "prlimit", *rlimits, host.bwrap),
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup"),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
        *(word for name, value in sorted(environment(job).items()) for word in ("--setenv", name, value)),
        *_bwrap_files(job, host),
        # kept for setpriv alone: a user namespace would leave the guest as the host's root
        *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
        *("--seccomp", str(seccomp_fd), "--json-status-fd", str(status_fd), "--chdir", "/tmp", "--"),
        *("/usr/bin/setpriv", "--reuid", str(job.uid), "--regid", str(job.uid), "--clear-groups", "--inh-caps=-all"),
        *("--bounding-set=-all", "--no-new-privs", "--"),
        *(job.image.python, *CANARY_FLAGS, job.image.python, *job.argv),
    ]


def _bwrap_files(job: Job, host: Host) -> Iterator[str]:
    limits = job.limits
    shown = sorted((b.target, str(b.source), "--ro-bind") for b in job.image.binds)
    shown += [(CANARY, host.canary, "--ro-bind")]
    shown += [(m.target, str(m.source), "--bind" if m.writable else "--ro-bind") for m in job.mounts]
    yield from ("--bind", "/run", "/tmp")  # the tmpfs of `MAKE_TMP`; first, because an image may lie below /tmp
    made = {"/", "/tmp"}
    targets = {target for target, _, _ in shown}
    for target, source, how in shown:
        for parent in reversed(PurePosixPath(target).parents):
            if str(parent) not in made | targets:
                made.add(str(parent))
                yield from ("--perms", "0755", "--dir", str(parent))  # bwrap's own parents would be 0700
        yield from (how, source, target)
    for link, to in host.links:
        if link not in targets:
            yield from ("--symlink", to, link)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for node in gpu_nodes(job, host):
        yield from ("--dev-bind", node, node)
    yield from ("--perms", "1777", "--size", str(limits.shm_bytes), "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
