"""The driver's error numbers (Xids) of one GPU in a window of time, and what each class of them means for the next run.

Two sources, either of which may be closed to us: the kernel log (`/dev/kmsg`) and NVML's events. A source that cannot be read is
named as such; from silence nobody concludes that there was no Xid.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sandbox import nvml
from sandbox.api import SandboxFault

KMSG = Path("/dev/kmsg")
APPLICATION = frozenset({13, 31, 43, 45})
"""A program's own fault: its context is gone, the GPU is not."""
RESET = frozenset({48, 63, 64, 79, 94, 95, 119, 120, 154})
"""Memory, bus, firmware, or a driver that asks for it: no measurement on this GPU before somebody has looked."""
LINE = re.compile(r"[0-7],\d+,\d+,[^;]*;NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(.*)")
"""A whole record of the kernel's own (facility 0), from its start: a guest chooses the name of a file in which it crashes, and the
kernel writes that name into the middle of a line."""

Kind = Literal["application", "reset", "other"]


@dataclass(frozen=True)
class Xid:
    """One report of the driver."""

    number: int
    source: Literal["kmsg", "nvml"]
    text: str = ""

    @property
    def kind(self) -> Kind:
        return "application" if self.number in APPLICATION else "reset" if self.number in RESET else "other"


@dataclass(frozen=True)
class XidLog:
    """What a window brought."""

    seen: tuple[Xid, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    """Source -> `read`, `not readable: ...`, or `read, with gaps`."""

    @property
    def readable(self) -> bool:
        return any(state.startswith("read") for _, state in self.sources)

    def of(self, kind: Kind) -> tuple[Xid, ...]:
        return tuple(xid for xid in self.seen if xid.kind == kind)

    def facts(self) -> dict[str, object]:
        return {
            "seen": [{"xid": x.number, "kind": x.kind, "source": x.source, "text": x.text} for x in self.seen],
            "sources": dict(self.sources),
        }


class Watch(Protocol):
    """A window that is open from its making on."""

    def close(self) -> XidLog:
        """All that came; the window is over. A second call returns the same."""


class HostWatch:
    """The real one: both sources of this host, as far as they are open to us."""

    def __init__(self, uuid: str, pci: str, kmsg: Path = KMSG) -> None:
        self._pci = pci
        self._states: dict[str, str] = {}
        self._log: XidLog | None = None
        self._fd: int | None = None
        self._events: nvml.XidEvents | None = None
        try:
            self._fd = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self._states["kmsg"] = f"not readable: {error.strerror}"
        try:
            self._events = nvml.XidEvents(uuid)
        except SandboxFault as fault:
            self._states["nvml"] = f"not readable: {fault}"

    def close(self) -> XidLog:
        if self._log is None:
            seen = [*self._kernel(), *self._driver()]
            self._log = XidLog(tuple(seen), tuple(sorted(self._states.items())))
        return self._log

    def _kernel(self) -> list[Xid]:
        if self._fd is None:
            return []
        self._states.setdefault("kmsg", "read")
        try:
            return parse(_records(self._fd, self._states), self._pci)
        finally:
            os.close(self._fd)
            self._fd = None

    def _driver(self) -> list[Xid]:
        if self._events is None:
            return []
        try:
            found = [Xid(number, "nvml") for number in self._events.drain()]
            self._states["nvml"] = "read"
        except SandboxFault as fault:
            found = []
            self._states["nvml"] = f"not readable: {fault}"
        finally:
            with contextlib.suppress(SandboxFault):  # a GPU that fell off the bus; the gate's own reading says so
                self._events.close()
            self._events = None
        return found


def parse(lines: list[str], pci: str) -> list[Xid]:
    """The Xids of the GPU at this PCI address among lines of a kernel log; the function digit may be missing there."""
    found = []
    for line in lines:
        matched = LINE.match(line)
        if matched and nvml.pci(matched[1]).partition(".")[0] == pci.partition(".")[0]:
            found.append(Xid(int(matched[2]), "kmsg", matched[3].strip(" ,")[:300]))
    return found


def _records(fd: int, states: dict[str, str]) -> list[str]:
    """Each read of /dev/kmsg gives one record; EPIPE says that some were overwritten before we came."""
    lines: list[str] = []
    while len(lines) < 100_000:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            return lines
        except OSError as error:
            if error.errno == errno.EPIPE:
                states["kmsg"] = "read, with gaps"
                continue
            states["kmsg"] = f"not readable: {error.strerror}"
            return lines
        if not record:
            return lines
        lines.append(record.decode("utf-8", "backslashreplace"))
    return lines
