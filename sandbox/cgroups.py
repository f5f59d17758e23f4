"""The kernel's counters, caps and freezer of one container, on cgroup v1, v2, or the hybrid of both.

Docker makes its own groups: `Group.of_pid` finds them through `/proc/<pid>/cgroup`. bubblewrap has none:
`Group.create` makes them under our own group, so that a limit set on us from outside still holds for what we start.
Freezing, counting and killing are then the same for both engines.

Traps: on v1 a frozen process does not die before it is thawed; a group and its counters vanish as soon as the engine
removes the container, so counters are read at the moment of the exit; whether a controller can be written is probed,
never inferred.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from sandbox.api import Limits, SandboxFault, SandboxUnavailable
from sandbox.survivors import Unkillable

FREEZE_S = 2.0
"""A group that does not come to a stop in this time (a task stuck in a driver) is a fault."""
EMPTY_S = 5.0
GONE_S = 30.0
"""A directory stays busy while a zombie of it waits for a slow init to reap it."""
V1 = ("memory", "pids", "cpuset", "cpuacct", "freezer")
NEEDED = ("memory", "pids")
UNIFIED = "unified"


@dataclass(frozen=True)
class Counters:
    """What the kernel counted for one container. None: no such counter here, or it vanished before we read it."""

    oom_kills: int | None = None
    pids_refused: int | None = None
    memory_peak_bytes: int | None = None
    cpu_s: float | None = None

    def or_else(self, earlier: Counters) -> Counters:
        """This reading, completed by an earlier one where it is missing."""
        return Counters(**{k: v if v is not None else getattr(earlier, k) for k, v in self.__dict__.items()})


@dataclass(frozen=True)
class Group:
    """The directories of one container: `{"unified": dir}` on v2, one by controller on v1."""

    dirs: Mapping[str, Path]

    @classmethod
    def of_pid(cls, pid: int) -> Group:
        """The groups in which a process is; empty when it is gone."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return cls({})
        return cls({c: d for c, d in _own_dirs(lines).items() if d.is_dir()})

    @classmethod
    def create(cls, name: str, limits: Limits) -> Group:
        """Make and cap new groups. Raises SandboxUnavailable where memory or pids cannot be capped."""
        group = cls({c: parent / name for c, parent in _parents().items()})
        try:
            for path in group.paths():
                path.mkdir()
            group._cap(limits)
        except OSError as error:
            group.remove()
            raise SandboxFault(f"cgroup {name}: {error}") from error
        return group

    def paths(self) -> tuple[Path, ...]:
        """Each directory once (v1 controllers may share a mount)."""
        return tuple(dict.fromkeys(self.dirs.values()))

    def _cap(self, limits: Limits) -> None:
        if unified := self.dirs.get(UNIFIED):
            _write(unified / "memory.max", limits.memory_bytes)
            if (unified / "memory.swap.max").exists():
                _write(unified / "memory.swap.max", 0)
            _write(unified / "pids.max", limits.pids)
            if limits.cpus:
                _write(unified / "cpuset.cpus", _cpu_list(limits.cpus))
            return
        memory = self.dirs["memory"]
        _write(memory / "memory.limit_in_bytes", limits.memory_bytes)
        if (memory / "memory.memsw.limit_in_bytes").exists():
            _write(memory / "memory.memsw.limit_in_bytes", limits.memory_bytes)
        _write(self.dirs["pids"] / "pids.max", limits.pids)
        if cpuset := self.dirs.get("cpuset"):  # both files must be filled before a process may join
            _write(cpuset / "cpuset.mems", (cpuset.parent / "cpuset.mems").read_text().strip())
            _write(
                cpuset / "cpuset.cpus", _cpu_list(limits.cpus) or (cpuset.parent / "cpuset.cpus").read_text().strip()
            )
        elif limits.cpus:
            raise SandboxFault("this host's cgroups cannot pin CPUs (no cpuset controller)")

    def sample(self) -> Counters:
        """Read the counters now; what is gone is None."""
        if unified := self.dirs.get(UNIFIED):
            return Counters(
                oom_kills=_keyed(unified / "memory.events", "oom_kill"),
                pids_refused=_keyed(unified / "pids.events", "max"),
                memory_peak_bytes=_number(unified / "memory.peak"),
                cpu_s=_scaled(_keyed(unified / "cpu.stat", "usage_usec"), 1e-6),
            )
        none = Path("/nonexistent")
        return Counters(
            oom_kills=_keyed(self.dirs.get("memory", none) / "memory.oom_control", "oom_kill"),
            pids_refused=_keyed(self.dirs.get("pids", none) / "pids.events", "max"),
            memory_peak_bytes=self._peak(self.dirs.get("memory", none)),
            cpu_s=_scaled(_number(self.dirs.get("cpuacct", none) / "cpuacct.usage"), 1e-9),
        )

    @staticmethod
    def _peak(memory: Path) -> int | None:
        """With swap, where it is counted: who pages itself out reaches its cap all the same (`memory.max_usage` would hide it)."""
        swapped = _number(memory / "memory.memsw.max_usage_in_bytes")
        return _number(memory / "memory.max_usage_in_bytes") if swapped is None else swapped

    def freeze(self) -> None:
        """Return when all in it have stopped. Raises SandboxFault after FREEZE_S, FileNotFoundError when it is gone."""
        deadline = time.monotonic() + FREEZE_S
        self._order(stop=True)
        while not self._stopped():
            if time.monotonic() > deadline:
                self._order(stop=False)
                raise SandboxFault(f"processes did not freeze within {FREEZE_S:g} s")
            time.sleep(0.0002)

    def thaw(self) -> None:
        """Let them run again. Nothing to do when it is gone."""
        with contextlib.suppress(FileNotFoundError):
            self._order(stop=False)

    def _order(self, *, stop: bool) -> None:
        if freezer := self.dirs.get("freezer"):
            _write(freezer / "freezer.state", "FROZEN" if stop else "THAWED")
        elif unified := self.dirs.get(UNIFIED):
            _write(unified / "cgroup.freeze", int(stop))
        elif stop:
            raise PermissionError(errno.EPERM, "no freezer is mounted here")

    def _stopped(self) -> bool:
        try:
            if freezer := self.dirs.get("freezer"):
                return (freezer / "freezer.state").read_text() == "FROZEN\n"
            return _keyed(self.dirs[UNIFIED] / "cgroup.events", "frozen") == 1
        except OSError as error:  # ENODEV: removed while we held it open
            raise FileNotFoundError(str(error)) from error

    def pids(self) -> set[int]:
        """Everyone in any of its directories, by the host's numbers."""
        found: set[int] = set()
        for path in self.paths():
            with contextlib.suppress(OSError):
                found |= {int(line) for line in (path / "cgroup.procs").read_text().split()}
        return found

    def strike(self) -> None:
        """SIGKILL to everyone in it at once, without waiting: by the kernel's `cgroup.kill` (v2, Linux 5.14), or to each while
        all are frozen, so that none of them forks away."""
        unified = self.dirs.get(UNIFIED)
        if unified and (unified / "cgroup.kill").exists():
            with contextlib.suppress(OSError):
                _write(unified / "cgroup.kill", 1)
        else:
            with contextlib.suppress(OSError):  # no freezer of ours, or gone: then without
                self._order(stop=True)
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(PermissionError):
            self.thaw()  # on v1 nobody dies frozen

    def kill(self) -> None:
        """Strike until nobody is left. Raises Unkillable after EMPTY_S."""
        deadline = time.monotonic() + EMPTY_S
        while self.pids():
            self.strike()
            time.sleep(0.002)
            if time.monotonic() > deadline and (left := self.pids()):
                where = next(iter(self.paths())).name
                raise Unkillable(f"cgroup {where}", f"{EMPTY_S:g} s of SIGKILL to the whole of it", left)

    def remove(self) -> None:
        """Kill what is left, or still joins, and remove the directories. Raises SandboxFault when they stay."""
        deadline = time.monotonic() + GONE_S
        while True:
            self.kill()
            try:
                for path in self.paths():
                    with contextlib.suppress(FileNotFoundError):
                        path.rmdir()
            except OSError as error:  # EBUSY: see GONE_S
                if time.monotonic() > deadline:
                    raise SandboxFault(f"cgroup cannot be removed: {error}") from error
                time.sleep(0.002)
            else:
                return


@cache
def hierarchies() -> Mapping[str, tuple[str, Path]]:
    """Controller (or `unified`) -> root of the mount inside its hierarchy, mount point."""
    found: dict[str, tuple[str, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split(maxsplit=2)
        for controller in {"cgroup2": [UNIFIED], "cgroup": options.split(",")}.get(kind, []):
            found.setdefault(controller, (root, Path(point)))
    return found


def kind() -> str:
    """`v2`, `v1`, `hybrid` (v1 controllers beside an empty v2 mount), or `none`."""
    have = set(hierarchies())
    v1 = bool(have & set(V1))
    return {(True, True): "hybrid", (True, False): "v1", (False, True): "v2"}.get((v1, UNIFIED in have), "none")


def writable() -> tuple[str, ...]:
    """Controllers in which groups can be made here. Raises SandboxUnavailable when memory or pids cannot be capped."""
    return tuple(_parents())


def freezer() -> str:
    """Which freezer stops a group: `v1`, `v2` or `none`."""
    return "v1" if "freezer" in hierarchies() else "v2" if kind() == "v2" else "none"


def named(prefix: str) -> Iterator[tuple[str, Group]]:
    """Groups whose names begin so, wherever they are and whoever made them: for the reaper and for tests."""
    found: dict[str, dict[str, Path]] = {}
    for controller, (_, point) in hierarchies().items():
        for folder, children, _ in os.walk(point):
            for name in [child for child in children if child.startswith(prefix)]:
                found.setdefault(name, {})[controller] = Path(folder, name)
                children.remove(name)
    for name, dirs in found.items():
        yield name, Group(dirs)


@cache
def _parents() -> Mapping[str, Path]:
    """Where new groups can be made, by controller. Raises SandboxUnavailable when memory or pids cannot be capped."""
    own = _own_dirs(Path("/proc/self/cgroup").read_text())
    if kind() == "v2":
        return {UNIFIED: _v2_parent(own.get(UNIFIED))}
    usable = {c: own[c] for c in V1 if c in own and _can_make(own[c])}
    if missing := [c for c in NEEDED if c not in usable]:
        raise SandboxUnavailable(
            f"cgroup {kind()}: cannot make groups for {', '.join(missing)}: run as root on a host with them"
        )
    return usable


def _v2_parent(own: Path | None) -> Path:
    """The first of our own group and the top one under which a child really gets the caps."""
    for parent in filter(None, (own, hierarchies()[UNIFIED][1])):
        for controller in ("memory", "pids", "cpuset"):
            with contextlib.suppress(OSError):  # EBUSY: a group with processes in it cannot have children with caps
                _write(parent / "cgroup.subtree_control", f"+{controller}")
        if _can_make(parent, holds="memory.max") and _can_make(parent, holds="pids.max"):
            return parent
    raise SandboxUnavailable(
        "cgroup v2: cannot make groups with memory and pids caps: run as root with a delegated cgroup"
    )


def _can_make(parent: Path, holds: str = "cgroup.procs") -> bool:
    trial = parent / f"assay-probe-{uuid4().hex[:8]}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        return (trial / holds).exists()
    finally:
        trial.rmdir()


def _own_dirs(lines: str) -> dict[str, Path]:
    """`/proc/<pid>/cgroup` -> directories, as seen from our mounts."""
    found: dict[str, Path] = {}
    for line in lines.splitlines():
        _, names, inside = line.split(":", 2)
        for controller in names.split(",") if names else [UNIFIED]:
            if controller in hierarchies():
                root, point = hierarchies()[controller]
                relative = inside.removeprefix(root) if root != "/" else inside
                if ".." not in relative.split("/"):
                    found[controller] = point / relative.lstrip("/")
    # beside v1 controllers the v2 mount has no counters of its own
    return {UNIFIED: found[UNIFIED]} if kind() == "v2" and UNIFIED in found else {c: found[c] for c in V1 if c in found}


def _cpu_list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def _write(path: Path, value: object) -> None:
    try:
        with path.open("w") as file:
            file.write(str(value))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # the group is gone
            raise FileNotFoundError(str(error)) from error
        if error.errno == errno.EROFS:
            raise PermissionError(errno.EROFS, str(error)) from error
        raise


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _keyed(path: Path, key: str) -> int | None:
    """A value of a file of `key value` lines."""
    with contextlib.suppress(OSError, ValueError):
        return next((int(v) for k, v in (line.split() for line in path.read_text().splitlines()) if k == key), None)
    return None


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit
