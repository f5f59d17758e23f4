"""The commands about images: their locks and bases, to build one, to list them, to verify one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from images import lock as locks
from images.api import Image
from runner import doctor as clinic
from runner import exits, host
from runner.options import GuestPython, Home, Json

image_app = typer.Typer(help="The images that judge and guests run in.", no_args_is_help=True)

BuiltName = Annotated[str, typer.Argument(metavar="NAME", help="Which image: cpu.")]
SHOWN = 50
"""Differences that are printed one by one."""


@image_app.command()
def build(
    name: BuiltName = "cpu",
    home: Home = None,
    base: Annotated[Path | None, typer.Option(help="Tar of a root filesystem; else bootstrapped once.")] = None,
    as_json: Json = False,
) -> int:
    """Build an image from a bootstrapped base and the wheels of its lock, offline, and pin it by its digest."""
    from images.cpu import build_cpu_image

    _known(name)
    if base is not None and not base.is_file():
        raise exits.UsageError(f"--base: no such file: {base}")
    _shown([_facts(build_cpu_image(host.home(home), base=base, say=_tell), host.home(home))], as_json)
    return exits.WINNER


@image_app.command(name="list")
def list_images(home: Home = None, guest_python: GuestPython = None, as_json: Json = False) -> int:
    """The images that a run can use now."""
    place = host.home(home)
    found = [image for image in (clinic.host_image(guest_python), clinic.built_image(place)) if image]
    _shown([_facts(image, place) for image in found], as_json)
    return exits.WINNER


@image_app.command()
def lock(
    name: Annotated[str | None, typer.Argument(metavar="[cpu|cuda]", help="Which lock; all of them else.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; code 76 when pip finds other wheels.")] = False,
) -> int:
    """Resolve the wheels of an image again and write its lock. Takes a minute or two, and installs nothing."""
    differs = False
    for each in sorted(locks.WANTED) if name is None else [name]:
        if each not in locks.WANTED:
            raise exits.UsageError(f"unknown lock {each!r}; there is {', '.join(sorted(locks.WANTED))}")
        if check:
            found = locks.check(each)
            differs = differs or bool(found)
            word = "differs from what pip finds now" if found else "is what pip finds now"
            sys.stdout.write("".join([f"{each}: {line}\n" for line in found] + [f"lock {each} {word}\n"]))
        else:
            word = "changed" if locks.write(each) else "is as it was"
            sys.stdout.write(f"lock {each} {word}: {locks.digest(each)}, {len(locks.pins(each))} wheels\n")
    return exits.DISAGREES if differs else exits.WINNER


@image_app.command()
def bootstrap(
    home: Home = None,
    packages: Annotated[
        Path | None, typer.Option(help="Have exactly these versions: the .packages file of another base.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also where there is a base already.")] = False,
) -> int:
    """Make the base of a built image with mmdebstrap, and record the version of every package beside it."""
    from images import base, steps

    tar = host.home(home) / "images" / "base.tar"
    if tar.exists() and not again:
        raise exits.UsageError(f"{tar} is there already; --again makes another")
    base.bootstrap(tar, _tell, versions=packages)
    count = len(base.read_versions(base.record_of(tar)))
    sys.stdout.write(f"{tar}  sha256:{steps.sha256(tar)}  {count} packages\n")
    return exits.WINNER


@image_app.command()
def verify(name: BuiltName = "cpu", home: Home = None, as_json: Json = False) -> int:
    """Hash a built image again, from outside, and compare it with what the build recorded. Code 76: it differs."""
    from images import examine

    _known(name)
    found = examine.differences(host.home(home), name)
    if as_json:
        _json({"name": name, "verified": not found, "differences": found})
    else:
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        answer = f"image {name} is not what was built" if found else f"image {name} is what was built"
        sys.stdout.write("".join(f"{line}\n" for line in [*found[:SHOWN], *more, answer]))
    return exits.DISAGREES if found else exits.WINNER


def _known(name: str) -> None:
    if name != "cpu":
        raise exits.UsageError(f"unknown image {name!r}; there is cpu")


def _tell(line: str) -> None:
    sys.stderr.write(f"[assay] image {line}\n")


def _facts(image: Image, home: Path) -> dict[str, Any]:
    """What `list` says of one image. The host image has no lock, no date and no bill of materials."""
    found: dict[str, Any] = {"name": image.name, "digest": image.digest, "manifest": dict(image.manifest)}
    if image.name == "host":
        return found
    from images import cpu

    locked, bill = image.manifest.get("lock"), cpu.record_folder(home, image.digest) / "sbom.json"
    return found | {
        "lock": locked,
        "lock_is_current": locked == locks.digest(image.name),
        "built": image.manifest.get("built"),
        "sbom": str(bill) if bill.is_file() else None,
        "containers": cpu.containers(image),
    }


def _shown(images: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _json(images)
        return
    for image in images:
        facts = [f"{key} {image['manifest'][key]}" for key in ("python", "torch", "triton") if key in image["manifest"]]
        if "lock" in image:
            age = "current" if image["lock_is_current"] else "not the lock that is here: build it again"
            facts += [
                f"lock {(image['lock'] or 'none')[:19]} ({age})",
                f"built {image['built'] or 'at an unknown time'}",
            ]
            count = image["containers"]
            facts += [f"in use by {count} container{'s' * (count > 1)}" if count else "not in use"]
        sys.stdout.write(f"{image['name']}  {image['digest']}  {', '.join(facts)}\n")


def _json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
