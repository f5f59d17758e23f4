"""A real CPU image, built without a registry: a bootstrapped Debian, and wheels installed into it offline.

The base is what `mmdebstrap` makes (or a tar that the caller has), imported; the wheels of the lock are fetched on the host by its
own pip configuration and bind-mounted read-only into a container without network, which installs them by their hashes and is
committed. The result is pinned by its image ID in `<home>/images.json`, beside a manifest of what went in; what the image then
holds, and its bill of materials, are written to `<home>/images/<ID>/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images import base as bases
from images import contents, engine, lock, sbom, steps
from images.api import Image, ImageFault

if TYPE_CHECKING:
    import docker

PYTHON = "/opt/venv/bin/python"
ENV = {"PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"}
LOCK_FILE = "lock.txt"

INSTALL = """set -eu
echo 'judge:x:65533:65533::/tmp:/usr/sbin/nologin' >>/etc/passwd
python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --no-index --find-links /wheels --no-deps --require-hashes --no-cache-dir -r "/wheels/$1"
/opt/venv/bin/pip check
"""
VERSIONS = """
import importlib.metadata as m, json, platform
print(json.dumps({"python": platform.python_version()} | {n: m.version(n) for n in ("torch", "triton", "numpy")}))
"""
Say = Callable[[str], None]


def build_cpu_image(home: Path, *, base: Path | None = None, say: Say = lambda _: None) -> Image:
    """Build the image and pin it; `base` is a root filesystem tar (None: bootstrap one into `home`, once).

    Takes one to four minutes. Raises ImageFault with one line when a step fails.
    """
    work = home / "images"
    work.mkdir(parents=True, exist_ok=True)
    locked = lock.digest("cpu")
    own = work / "base.tar"
    base = base or (own if own.exists() else bases.bootstrap(own, say))
    with closing(engine.connect(steps.LONG_S)) as client, engine.translated("building the image cpu"):
        say(f"importing {base.name}")
        base_sha = steps.sha256(base)
        base_id = _import(client, base, base_sha)
        python = steps.run(client, base_id, ["python3", "-c", "import platform; print(platform.python_version())"])
        _same_python(python.strip(), base)
        say(f"fetching the {len(lock.pins('cpu'))} wheels of lock {locked[:19]}")
        wheels = _download(work / f"wheels-{locked.removeprefix('sha256:')[:16]}")
        say("installing them offline")
        built = _install(client, base_id, wheels)
        versions: dict[str, str] = json.loads(steps.run(client, built, [PYTHON, "-I", "-c", VERSIONS]))
        say("recording what the image holds")
        manifest = versions | {"base_sha256": base_sha, "packages": ",".join(bases.PACKAGES), "lock": locked}
        manifest |= {f"wheel {pin.name}": pin.sha256 for pin in lock.pins("cpu")}
        manifest |= _record(client, home, built, manifest)
    image = Image(name="cpu", digest=built, python=PYTHON, engine_ref=built, env=ENV, manifest=manifest)
    _pin(home, image)
    return image


def load(home: Path, name: str) -> Image:
    """The pinned image of this name. Raises ImageFault when it was never built, or Docker no longer has it."""
    image = pinned(home, name)
    verify(image)
    return image


def pinned(home: Path, name: str) -> Image:
    """What was recorded under this name, whether Docker still has it or not. Raises ImageFault when nothing was."""
    record = _records(home).get(name)
    if record is None:
        raise ImageFault(f"no image {name!r} in {home}: build it first (assay image build)")
    try:
        return Image(
            name=name,
            digest=record["digest"],
            python=record["python"],
            engine_ref=record["digest"],
            env=record["env"],
            manifest=record["manifest"],
        )
    except (KeyError, TypeError) as error:
        raise ImageFault(f"{_record_file(home)}: malformed entry {name!r}: {error}") from error


def verify(image: Image) -> None:
    """Docker holds exactly this image ID, and so exactly this content. Raises ImageFault."""
    with closing(engine.connect()) as client, engine.translated(f"image {image.name} ({image.digest[:19]})"):
        found = engine.image_id(client, image.digest)
    if found != image.digest:
        raise ImageFault(f"image {image.name}: Docker has {found} under {image.digest}")


def containers(image: Image) -> int:
    """How many containers there are of an image, running or not. Raises ImageFault."""
    with closing(engine.connect()) as client, engine.translated(f"containers of image {image.name}"):
        return len(client.containers(all=True, filters={"ancestor": image.digest}))


def record_folder(home: Path, digest: str) -> Path:
    """Where `contents.json` and `sbom.json` of an image are."""
    return home / "images" / digest.removeprefix("sha256:")[:16]


def _same_python(python: str, base: Path) -> None:
    if not python.startswith(lock.WANTED["cpu"].python + "."):
        raise ImageFault(f"{base.name} has Python {python}; lock cpu is for Python {lock.WANTED['cpu'].python}")


def _download(folder: Path) -> Path:
    """The wheels of the lock, by their hashes, from wherever the host's pip finds them; the lock beside them."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--no-deps", "--require-hashes"]
    pip += ["--python-version", lock.WANTED["cpu"].python, "--dest", str(folder), "-r", str(lock.path("cpu"))]
    try:
        steps.command(pip)
    except ImageFault as fault:
        raise ImageFault(f"{fault} (`assay image lock cpu` writes a lock of the wheels that pip finds here)") from None
    (folder / LOCK_FILE).write_bytes(lock.path("cpu").read_bytes())
    return folder


def _import(client: docker.APIClient, tar: Path, sha256: str) -> str:
    """The ID of the imported base; the same tar is imported once."""
    name = f"assay-base:{sha256[:16]}"
    if not client.images(name):
        client.import_image_from_file(str(tar), repository="assay-base", tag=sha256[:16])
    return engine.image_id(client, name)


def _install(client: docker.APIClient, base_id: str, wheels: Path) -> str:
    """Install in a container without network and commit it; the new image's ID."""
    from docker.types import Mount

    mount = Mount("/wheels", str(wheels.resolve()), type="bind", read_only=True)
    container = steps.create(client, base_id, ["sh", "-c", INSTALL, "install", LOCK_FILE], mounts=[mount])
    try:
        steps.finish(client, container)
        return str(client.commit(container, repository="assay-cpu", tag="latest")["Id"])
    finally:
        client.remove_container(container, force=True, v=True)


def _record(client: docker.APIClient, home: Path, built: str, manifest: Mapping[str, str]) -> dict[str, str]:
    """Write what the image holds and its bill of materials; the digests of both, and when."""
    found = contents.read(client, built, (sbom.DPKG_STATUS, sbom.OS_RELEASE))
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    suite = re.search(r"^VERSION_CODENAME=(\w+)$", found.texts.get(sbom.OS_RELEASE, ""), re.M)
    listing = json.dumps(found.entries, indent=0, sort_keys=True).encode()
    facts = {"built": at, "contents_sha256": hashlib.sha256(listing).hexdigest()}
    bill = sbom.document(
        "cpu",
        built,
        at=at,
        debian=sbom.debian_packages(found.texts.get(sbom.DPKG_STATUS, "")),
        suite=suite[1] if suite else "unknown",
        python=sbom.python_packages(found.entries),
        pins=lock.pins("cpu"),
        properties={key: manifest[key] for key in ("base_sha256", "lock")} | facts,
    )
    text = (json.dumps(bill, indent=1) + "\n").encode()
    folder = record_folder(home, built)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "contents.json").write_bytes(listing)
    (folder / "sbom.json").write_bytes(text)
    return facts | {"sbom_sha256": hashlib.sha256(text).hexdigest()}


def _record_file(home: Path) -> Path:
    return home / "images.json"


def _records(home: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_record_file(home).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, json.JSONDecodeError) as error:
        raise ImageFault(f"{_record_file(home)}: {error}") from error
    if not isinstance(found, dict):
        raise ImageFault(f"{_record_file(home)}: not an object of images")
    return found


def _pin(home: Path, image: Image) -> None:
    """Whole or not at all."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", image.digest):
        raise ImageFault(f"Docker gave no image ID but {image.digest!r}")
    record = {"digest": image.digest, "python": image.python, "env": dict(image.env), "manifest": dict(image.manifest)}
    partial = _record_file(home).with_suffix(".partial")
    with partial.open("w") as file:
        json.dump({**_records(home), image.name: record}, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(_record_file(home))
