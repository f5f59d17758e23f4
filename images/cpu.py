"""A real CPU image, built without a registry: a bootstrapped Debian, and wheels installed into it offline.

The base is what `mmdebstrap` makes (or a tar that the caller has), imported; the wheels are fetched on the host by its own pip
configuration and bind-mounted read-only into a container without network, which installs them and is committed. The result is
pinned by its image ID in `<home>/images.json`, beside a manifest of what went in.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images import engine
from images.api import Image, ImageFault

if TYPE_CHECKING:
    import docker
    from docker.types import Mount

PACKAGES = ("python3", "python3-venv", "python3-dev", "gcc", "libc6-dev", "ca-certificates")
WHEELS = ("torch==2.13.0", "triton==3.7.1", "numpy")
PYTHON = "/opt/venv/bin/python"
ENV = {"PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"}
LONG_S = 1800
"""Longest for a bootstrap, a download, an installation or a commit."""

INSTALL = """set -eu
echo 'judge:x:65533:65533::/tmp:/usr/sbin/nologin' >>/etc/passwd
python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --no-index --find-links /wheels --no-cache-dir "$@"
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
    base = base or _bootstrap(work / "base.tar", say)
    with closing(engine.connect(LONG_S)) as client, engine.translated("building the image cpu"):
        say(f"importing {base.name}")
        base_sha = _sha256(base)
        base_id = _import(client, base, base_sha)
        python = _run(client, base_id, ["python3", "-c", "import platform; print(platform.python_version())"]).strip()
        say(f"fetching wheels for Python {python}: {', '.join(WHEELS)}")
        wheels = _download(work / f"wheels-{python}", python)
        say("installing them offline")
        built = _install(client, base_id, wheels)
        versions: dict[str, str] = json.loads(_run(client, built, [PYTHON, "-I", "-c", VERSIONS]))
    manifest = versions | {"base_sha256": base_sha, "packages": ",".join(PACKAGES)}
    manifest |= {f"wheel {wheel.name}": _sha256(wheel) for wheel in sorted(wheels.glob("*.whl"))}
    image = Image(name="cpu", digest=built, python=PYTHON, engine_ref=built, env=ENV, manifest=manifest)
    _pin(home, image)
    return image


def load(home: Path, name: str) -> Image:
    """The pinned image of this name. Raises ImageFault when it was never built, or Docker no longer has it."""
    record = _records(home).get(name)
    if record is None:
        raise ImageFault(f"no image {name!r} in {home}: build it first (assay image build)")
    try:
        image = Image(
            name=name,
            digest=record["digest"],
            python=record["python"],
            engine_ref=record["digest"],
            env=record["env"],
            manifest=record["manifest"],
        )
    except (KeyError, TypeError) as error:
        raise ImageFault(f"{_record_file(home)}: malformed entry {name!r}: {error}") from error
    verify(image)
    return image


def verify(image: Image) -> None:
    """Docker holds exactly this image ID, and so exactly this content. Raises ImageFault."""
    with closing(engine.connect()) as client, engine.translated(f"image {image.name} ({image.digest[:19]})"):
        found = engine.image_id(client, image.digest)
    if found != image.digest:
        raise ImageFault(f"image {image.name}: Docker has {found} under {image.digest}")


def _bootstrap(tar: Path, say: Say) -> Path:
    if tar.exists():
        return tar
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    say(f"bootstrapping Debian {suite}: {', '.join(PACKAGES)}")
    partial = tar.with_suffix(".partial.tar")
    _command(["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(partial)])
    partial.replace(tar)
    return tar


def _download(folder: Path, python: str) -> Path:
    """Wheels for the image's Python, from wherever the host's pip finds them."""
    short = ".".join(python.split(".")[:2])
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", short]
    _command([*pip, "--dest", str(folder), *WHEELS])
    return folder


def _command(argv: list[str]) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG_S, check=False
        )
    except FileNotFoundError as error:
        raise ImageFault(f"{argv[0]} is not installed (apt-get install {argv[0]})") from error
    except subprocess.TimeoutExpired as error:
        raise ImageFault(f"{argv[0]} took longer than {LONG_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ImageFault(f"{Path(argv[0]).name} failed ({done.returncode}): {lines[-1] if lines else 'no message'}")


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
    container = _create(client, base_id, ["sh", "-c", INSTALL, "install", *WHEELS], mounts=[mount])
    try:
        _finish(client, container)
        return str(client.commit(container, repository="assay-cpu", tag="latest")["Id"])
    finally:
        client.remove_container(container, force=True, v=True)


def _run(client: docker.APIClient, image: str, argv: list[str]) -> str:
    """What a short command of ours prints inside an image."""
    container = _create(client, image, argv)
    try:
        return _finish(client, container)
    finally:
        client.remove_container(container, force=True, v=True)


def _create(client: docker.APIClient, image: str, argv: list[str], mounts: list[Mount] | None = None) -> str:
    config = client.create_host_config(
        network_mode="none", cap_drop=["ALL"], security_opt=["no-new-privileges:true"], init=True, mounts=mounts
    )
    return str(client.create_container(image, argv, host_config=config, use_config_proxy=False)["Id"])


def _finish(client: docker.APIClient, container: str) -> str:
    client.start(container)
    code = int(client.wait(container, timeout=LONG_S)["StatusCode"])
    said = client.logs(container, stdout=True, stderr=bool(code), tail=50).decode("utf-8", "backslashreplace")
    if code:
        lines = [line for line in said.splitlines() if line.strip()]
        raise ImageFault(f"a build step failed ({code}): {lines[-1] if lines else 'no message'}")
    return said


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
