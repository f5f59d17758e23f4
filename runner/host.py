"""Where things are on this machine: the home, the guest's interpreter, the GPU. Imports neither torch nor triton."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tomllib
from pathlib import Path

from runner import devices
from runner.exits import CannotCreate, Unavailable

PROJECT = Path(__file__).resolve().parent.parent


def home(flag: Path | None) -> Path:
    """`--home`, else ASSAY_HOME, else `.assay` in the current folder. CannotCreate when something else is there."""
    found = flag or Path(os.environ.get("ASSAY_HOME") or ".assay")
    if found.exists() and not found.is_dir():
        raise CannotCreate(f"{found}: not a folder")
    return found


def program_version() -> str:
    """Of the checkout that runs, whether it is installed or only lies on the path (as on a host without a registry)."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def guest_python(flag: Path | None) -> Path:
    """The interpreter that judge and guests run on: it can import torch and triton; this process never does."""
    asked = flag or (Path(os.environ["ASSAY_GUEST_PYTHON"]) if os.environ.get("ASSAY_GUEST_PYTHON") else None)
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            raise Unavailable(f"guest interpreter {asked}: no such program")
        return Path(found)
    beside = PROJECT / ".guest" / "bin" / "python"
    if beside.exists():
        return beside
    if importlib.util.find_spec("torch") is not None:
        return Path(sys.executable)
    raise Unavailable("no guest environment with torch and triton: run `make setup`, or give --guest-python")


def gpu(device: str) -> dict[str, str] | None:
    """The GPU of a run on `cuda` (uuid, name, driver); None on `cpu`. Unavailable, with the way on, without one."""
    if device == "cpu":
        return None
    found = devices.gpus()
    if not found:
        raise Unavailable("no NVIDIA GPU here: give `--device cpu` to run in Triton's interpreter")
    return found[0]
