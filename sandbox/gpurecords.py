"""GPUs that must not be measured on, one small file each: why, since when, and in which boot it was found.

The record outlives the process and a reboot: a GPU whose memory or bus failed is not sound because the host was restarted. Only
`gate.release`, after a passing probe, takes it away. A record that cannot be read still counts.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.api import SandboxFault
from sandbox.gpulock import checked, private

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Quarantine:
    """Why a GPU is out of use."""

    uuid: str
    reason: str
    who: str = ""
    """What was running, as the gate was told."""
    unix_s: float = 0.0
    boot_id: str = ""

    def text(self) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.unix_s))
        return f"GPU {self.uuid} is quarantined since {when} ({self.reason})"


def state_folder() -> Path:
    """Where records lie."""
    if os.geteuid() == 0:
        return Path("/var/lib/assay/gpus")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "assay" / "gpus"


def find(uuid: str, folder: Path | None = None) -> Quarantine | None:
    """The GPU's record; None while it may be used."""
    path = _path(uuid, folder)
    try:
        said = json.loads(path.read_text())
        return Quarantine(uuid, str(said["reason"]), str(said["who"]), float(said["unix_s"]), str(said["boot_id"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Quarantine(uuid, f"its record {path} cannot be read: {type(error).__name__}")


def put(uuid: str, reason: str, who: str, folder: Path | None = None) -> Quarantine:
    """Write the record, whole or not at all, on disk when this returns. Raises SandboxFault."""
    record = Quarantine(uuid, reason, who, time.time(), BOOT.read_text().strip())
    path = _path(uuid, folder)
    private(path.parent)
    beside = path.with_suffix(".new")
    try:
        with beside.open("w") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        raise SandboxFault(f"{path}: {error.strerror}; and {record.text()}") from error
    return record


def lift(uuid: str, folder: Path | None = None) -> None:
    """Take the record away; nothing to do without one."""
    _path(uuid, folder).unlink(missing_ok=True)


def _path(uuid: str, folder: Path | None) -> Path:
    return (folder or state_folder()) / f"{checked(uuid)}.json"
