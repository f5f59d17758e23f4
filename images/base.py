"""The base of a built image where no registry can be reached: a Debian that `mmdebstrap` makes from the host's own archive.

Debian's archive moves, so a base is not the same bytes twice. What went in is recorded beside it, name and version of every
package; a second host can ask for exactly those versions, and is told which of them the archive no longer has.
"""

from __future__ import annotations

import platform
import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from images import steps
from images.api import ImageFault
from images.sbom import DPKG_STATUS, debian_packages

PACKAGES = ("python3", "python3-venv", "python3-dev", "gcc", "libc6-dev", "ca-certificates")
PIN = re.compile(r"([a-z0-9][a-z0-9+.-]*)=([A-Za-z0-9.+:~-]+)")
Say = Callable[[str], None]


def bootstrap(tar: Path, say: Say = lambda _: None, *, versions: Path | None = None) -> Path:
    """Make the base, a minute or two, with `<tar>.packages` beside it (`name=version`, one on each line).

    `versions`: such a file of another base, whose versions this one must have. Raises ImageFault with one line when a step
    fails or the archive has other versions; nothing is left then.
    """
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    wanted = read_versions(versions) if versions else {}
    say(f"bootstrapping Debian {suite}: {', '.join(PACKAGES)}")
    tar.parent.mkdir(parents=True, exist_ok=True)
    partial = tar.with_suffix(".partial.tar")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="assay-pins-", suffix=".pref") as pins:
            pins.write("".join(f"Package: {n}\nPin: version {v}\nPin-Priority: 1001\n\n" for n, v in wanted.items()))
            pins.flush()
            steps.command(["mmdebstrap", *_options(Path(pins.name) if wanted else None), suite, str(partial)])
        have = versions_in(partial)
        if wanted and (other := _other(wanted, have)):
            raise ImageFault(f"the archive does not give the versions of {versions}: {'; '.join(other)}")
        record_of(tar).write_text("".join(f"{name}={version}\n" for name, version in sorted(have.items())))
        partial.replace(tar)
    finally:
        partial.unlink(missing_ok=True)
    return tar


def record_of(tar: Path) -> Path:
    """Where the versions of a base are recorded."""
    return tar.with_name(tar.name + ".packages")


def read_versions(file: Path) -> dict[str, str]:
    """Package -> version. Raises ImageFault, with the line's number, when a line is not `name=version`."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageFault(f"{file}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        match = PIN.fullmatch(line)
        if match is None:
            raise ImageFault(f"{file}, line {number}: not name=version")
        found[match[1]] = match[2]
    if not found:
        raise ImageFault(f"{file}: no packages")
    return found


def versions_in(tar: Path) -> dict[str, str]:
    """Package -> version of every installed Debian package of a root filesystem. Raises ImageFault when it is no Debian."""
    try:
        with tarfile.open(tar) as opened:
            for member in opened:
                if member.isreg() and member.name.removeprefix("./") == DPKG_STATUS:
                    file = opened.extractfile(member)
                    assert file is not None
                    return {name: version for name, version, _ in debian_packages(file.read().decode())}
    except (OSError, tarfile.TarError) as error:
        raise ImageFault(f"{tar}: {error}") from error
    raise ImageFault(f"{tar}: no Debian root filesystem ({DPKG_STATUS} is missing)")


def _options(pins: Path | None) -> list[str]:
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    if pins:
        inside = '"$1"/etc/apt/preferences.d/assay.pref'
        options += [f'--setup-hook=mkdir -p "$1"/etc/apt/preferences.d && cp {shlex.quote(str(pins))} {inside}']
        options += [f"--customize-hook=rm {inside}"]
    return options


def _other(wanted: Mapping[str, str], have: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {wanted.get(name, 'absent')} wanted, {have.get(name, 'absent')} found"
        for name in sorted({*wanted, *have})
        if wanted.get(name) != have.get(name)
    ]
