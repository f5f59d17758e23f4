"""Where things are on this machine: the home, the guest's interpreter, the GPU. Imports neither torch nor triton."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tomllib
from pathlib import Path

from eventstore.files import make_durable_dir
from runner import devices
from runner.exits import CannotCreate, Unavailable

PROJECT = Path(__file__).resolve().parent.parent


def home(flag: Path | None) -> Path:
    """`--home`, else ASSAY_HOME, else `.assay` in the current folder. CannotCreate when something else is there."""
    found = flag or Path(os.environ.get("ASSAY_HOME") or ".assay")
    if found.exists() and not found.is_dir():
        raise CannotCreate(f"{found}: not a folder; give another --home")
    return found


def make_home(home: Path) -> None:
    """Make the folder of a run that is about to begin. CannotCreate, one line, where that is not possible."""
    try:
        make_durable_dir(home)
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise CannotCreate(f"home {home} cannot be made: {said}; name another folder with --home") from None


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
            why = "not a program that can be run" if asked.exists() else "no such program"
            raise Unavailable(f"guest interpreter {asked}: {why}")
        return _in_real_folder(Path(found))
    beside = PROJECT / ".guest" / "bin" / "python"
    if beside.exists():
        return _in_real_folder(beside)
    if importlib.util.find_spec("torch") is not None:
        return Path(sys.executable)
    raise Unavailable("no guest environment with torch and triton: run `make setup`, or give --guest-python")


def _in_real_folder(python: Path) -> Path:
    """Links in the folder's path followed, the program's own kept: it is how an environment is found.

    A container gets the environment's real folder; through a link above it, nothing would be there.
    """
    return python.parent.resolve() / python.name


def gpu(device: str) -> dict[str, str] | None:
    """The GPU of a run on `cuda` (uuid, name, driver); None on `cpu`. Unavailable, with the way on, without one."""
    if device == "cpu":
        return None
    found = devices.gpus()
    if not found:
        raise Unavailable("no NVIDIA GPU here: give `--device cpu` to run in Triton's interpreter")
    return found[0]
