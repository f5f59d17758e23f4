"""Which device nodes one GPU needs, from what the driver shows under /proc: no library, no CUDA context on the host.

Engines of API 1.41 know no CDI, so a container gets exactly three nodes: its GPU, the control node, and unified memory.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.api import SandboxFault

DRIVER = Path("/proc/driver/nvidia")
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def minors(root: Path = DRIVER) -> dict[str, int]:
    """GPU UUID -> N of /dev/nvidiaN. Empty without a driver."""
    found = {}
    for file in sorted(root.glob("gpus/*/information")):
        facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in file.read_text().splitlines())}
        if facts.get("GPU UUID") and facts.get("Device Minor", "").isdigit():
            found[facts["GPU UUID"]] = int(facts["Device Minor"])
    return found


def nodes(uuid: str, root: Path = DRIVER) -> tuple[str, ...]:
    """The device nodes of one GPU. Raises SandboxFault when the driver does not know it."""
    known = minors(root)
    if uuid not in known:
        raise SandboxFault(f"no GPU {uuid} on this host (known: {', '.join(known) or 'none'})")
    return (f"/dev/nvidia{known[uuid]}", *SHARED_NODES)


def driver_version(root: Path = DRIVER) -> str | None:
    """Like `580.95.05`; None without a driver."""
    try:
        first = (root / "version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((word for word in first.split() if word[0].isdigit() and word.count(".") >= 1), None)
