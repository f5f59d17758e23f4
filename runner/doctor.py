"""What this host can do, and what to do about what it cannot. Must run on a bare host: nothing here assumes an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images import lock
from images.api import Image, ImageFault
from runner import devices, host
from runner.exits import RunnerError

ENGINES = ("docker", "bwrap")


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """What to do; empty when nothing need be done."""


def examine(guest_python: Path | None, home: Path) -> list[Finding]:
    """Everything, in the order in which a run needs it."""
    return [
        *_sandbox(),
        *_engines(),
        _guest(guest_python),
        *_limits(guest_python, home),
        *_gpus(),
        _sqlite(),
        *_images(home),
    ]


def works(findings: list[Finding]) -> bool:
    """Whether candidates can be run here at all: under some engine an empty job ran, with all of its limits."""
    return any(found.ok for found in findings if found.name in {f"limits under {name}" for name in ENGINES})


def _sandbox() -> Iterator[Finding]:
    from sandbox.find import probe

    for check in probe():
        yield Finding(check.name, check.ok, check.detail, check.fix)


def _engines() -> Iterator[Finding]:
    """The question that counts: does `find` give us this engine?"""
    from sandbox.api import SandboxError
    from sandbox.find import find

    for name in ENGINES:
        try:
            found = find(name)  # type: ignore[arg-type]
        except SandboxError as error:
            yield Finding(f"engine {name}", False, str(error), "see the lines above")
        else:
            facts = ", ".join(f"{key} {value}" for key, value in sorted(found.describe().items()))
            yield Finding(f"engine {name}", True, facts)


def host_image(flag: Path | None) -> Image | None:
    """The host image, where there is a guest environment."""
    try:
        return _host_image(flag)
    except (RunnerError, ImageFault):
        return None


def built_image(home: Path) -> Image | None:
    """The image that `assay image build` made, where there is one."""
    from images.cpu import load

    try:
        return load(home, "cpu")
    except (ImageFault, OSError):
        return None


def _host_image(flag: Path | None) -> Image:
    from images.host import host_image as of

    return of(host.guest_python(flag), docker=False)


def _guest(flag: Path | None) -> Finding:
    try:
        image = _host_image(flag)
    except (RunnerError, ImageFault) as error:
        fix = "run `make setup`, or name an interpreter that has torch and triton with --guest-python"
        return Finding("guest environment", False, str(error), fix)
    versions = [f"{name} {image.manifest[name]}" for name in ("python", "torch", "triton") if name in image.manifest]
    return Finding("guest environment", True, f"{image.python}: {', '.join(versions)}")


def _limits(flag: Path | None, home: Path) -> Iterator[Finding]:
    """One empty job under each engine that is there: what the kernel really applied, not what was asked for."""
    from sandbox.api import SandboxError
    from sandbox.find import find
    from sandbox.proof import prove

    for name in ENGINES:
        try:
            image = _image_for(name, flag, home)
            problem = prove(find(name), image)  # type: ignore[arg-type]
        except (SandboxError, RunnerError, ImageFault) as error:
            yield Finding(f"limits under {name}", False, f"not tried: {error}", "see the lines above")
        else:
            fix = "no job starts under this engine before they hold" if problem else ""
            yield Finding(f"limits under {name}", not problem, problem or "proved", fix)


def _image_for(engine: str, flag: Path | None, home: Path) -> Image:
    """The host image, else for Docker the built one. Raises RunnerError or ImageFault without either."""
    from images.host import host_image as of

    try:
        return of(host.guest_python(flag), docker=engine == "docker")
    except (RunnerError, ImageFault):
        image = built_image(home) if engine == "docker" else None
        if image is None:
            raise
        return image


def _gpus() -> Iterator[Finding]:
    """What a measurement would call the GPUs; that there is none has been said by the sandbox."""
    for gpu in devices.gpus():
        yield Finding(f"measured on {gpu['name']}", True, f"{gpu['uuid']}, driver {gpu['driver']}")


def _sqlite() -> Finding:
    import apsw

    from eventstore.errors import LibraryTooOld
    from eventstore.schema import check_library

    try:
        check_library()
    except LibraryTooOld as error:
        return Finding("SQLite", False, str(error), "install apsw 3.51.3 or newer")
    return Finding("SQLite", True, f"{apsw.sqlite_lib_version()} through apsw {apsw.apsw_version()}")


def _images(home: Path) -> Iterator[Finding]:
    image = built_image(home)
    if image is None:
        yield Finding("image cpu", False, "not built", "optional, for Docker: `assay image build`")
        return
    current = image.manifest.get("lock") == lock.digest("cpu")
    detail = image.digest if current else f"{image.digest}, built from another lock than the one that is here"
    yield Finding("image cpu", True, detail, "" if current else "`assay image build`")
