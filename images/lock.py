"""What goes into an image, to the byte: one lock per image, each wheel with its version and SHA-256.

`resolve` asks the host's own pip which wheels the wanted packages and all that they need come to, for one Python on one
platform; nothing is installed. What pip reports is the lock. A build installs exactly the lock or fails; an image records the
lock's digest, and `check` says when the lock that is here is no longer what pip finds. pip judges "only for Python < 3.x" by the
Python that it runs under: each build therefore ends with `pip check` inside the image, which fails when something is missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.api import ImageFault

LOCKS = Path(__file__).parent / "locks"
RESOLVE_S = 600
"""Longest that pip may take to resolve one lock."""
PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==([A-Za-z0-9.+!]+) --hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Wanted:
    """What one lock is resolved from."""

    python: str
    """Python of the image, like 3.11."""
    packages: tuple[str, ...]
    """Requirements whose wheels, and all that those need, are locked."""


WANTED: Mapping[str, Wanted] = {
    "cpu": Wanted("3.11", ("torch==2.13.0", "triton==3.7.1", "numpy")),
    "cuda": Wanted("3.12", ("torch==2.11.0", "triton==3.6.0", "numpy")),
}


@dataclass(frozen=True)
class Pin:
    """One wheel of a lock."""

    name: str
    """Normalised: lower case, words joined by `-`."""
    version: str
    sha256: str
    """64 hexadecimal digits, of the wheel file."""


def path(name: str) -> Path:
    """The file of a lock. Raises ImageFault when there is none of this name."""
    if name not in WANTED:
        raise ImageFault(f"no lock {name!r}; there is {', '.join(sorted(WANTED))}")
    return LOCKS / f"{name}.txt"


def digest(name: str) -> str:
    """`sha256:...` of the lock file."""
    return "sha256:" + hashlib.sha256(_bytes(name)).hexdigest()


def pins(name: str) -> tuple[Pin, ...]:
    """The wheels of a lock, in its order. Raises ImageFault, with the line's number, when a line is no pin."""
    return _pins(_bytes(name).decode("utf-8", "backslashreplace"), name)


def _pins(lines: str, name: str) -> tuple[Pin, ...]:
    found = []
    for number, line in enumerate(lines.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = PIN.fullmatch(line)
        if match is None:
            raise ImageFault(f"{path(name).name}, line {number}: not name==version --hash=sha256:...")
        found.append(Pin(*match.groups()))
    if not found:
        raise ImageFault(f"{path(name).name}: an empty lock")
    return tuple(found)


def write(name: str) -> bool:
    """Resolve a lock again and write it; whether it changed."""
    file, text = path(name), resolve(name)
    changed = not file.exists() or file.read_text() != text
    file.write_text(text)
    return changed


def check(name: str) -> list[str]:
    """How the lock differs from what pip finds now, one line for each package; none: it is the same."""
    here, now = pins(name), _pins(resolve(name), name)
    return differences({pin.name: pin for pin in here}, {pin.name: pin for pin in now})


def differences(here: Mapping[str, Pin], now: Mapping[str, Pin]) -> list[str]:
    """One line for each package in which two locks are not the same."""
    found = []
    for name in sorted({*here, *now}):
        old, new = here.get(name), now.get(name)
        if old is None or new is None:
            found.append(f"{name}: {'not in the lock' if old is None else 'not wanted any more'}")
        elif old.version != new.version:
            found.append(f"{name}: {old.version} in the lock, {new.version} found")
        elif old.sha256 != new.sha256:
            found.append(f"{name} {old.version}: another wheel (sha256 {new.sha256[:12]}, locked {old.sha256[:12]})")
    return found


def resolve(name: str) -> str:
    """The text of a lock as pip finds it now: the host's index configuration, wheels only, nothing installed."""
    path(name)
    wanted = WANTED[name]
    with tempfile.TemporaryDirectory(prefix="assay-lock-") as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        pip += ["--only-binary=:all:", "--python-version", wanted.python, "--target", f"{folder}/none"]
        try:
            done = subprocess.run(
                [*pip, "--report", str(report), *wanted.packages],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RESOLVE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ImageFault(f"pip did not resolve lock {name} within {RESOLVE_S} s") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no message"]
            raise ImageFault(f"pip cannot resolve lock {name}: {lines[-1].removeprefix('ERROR: ')}")
        return text(name, json.loads(report.read_text())["install"])


def text(name: str, report: Iterable[Mapping[str, Any]]) -> str:
    """A lock's text from pip's installation report. Raises ImageFault for what is no wheel, or has no hash."""
    wanted, lines, tags = WANTED[name], [], set()
    for entry in report:
        called, version = entry["metadata"]["name"], entry["metadata"]["version"]
        normal = re.sub(r"[-_.]+", "-", called).lower()
        file = entry["download_info"]["url"].rsplit("/", 1)[-1]
        sha256 = entry["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if not file.endswith(".whl") or not sha256:
            raise ImageFault(f"lock {name}: {called} {version} is no wheel with a SHA-256")
        lines.append(f"{normal}=={version} --hash=sha256:{sha256}")
        tags.add("-".join(file.removesuffix(".whl").split("-")[-3:]))
    head = [
        f"# Written by `assay image lock {name}` from: {', '.join(wanted.packages)}",
        f"# Python {wanted.python}; the hashes are of wheels with these tags and of no others:",
        *(f"#   {tag}" for tag in sorted(tags)),
    ]
    return "\n".join([*head, *sorted(lines)]) + "\n"


def _bytes(name: str) -> bytes:
    try:
        return path(name).read_bytes()
    except FileNotFoundError as error:
        raise ImageFault(f"{path(name).name} is missing (assay image lock {name})") from error
