"""The host image: an empty root over which the host's system folders and the guest environment are bound read-only.

It needs no registry and no build, and is the only image that bubblewrap can use. Docker gets an empty image that
holds nothing but the mount points. No host configuration is shown: of /etc only the loader's cache, beside our own
passwd and group. Its identity is its manifest: versions, and digests of the interpreter and of what the package
installer recorded for torch and triton.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from images import engine
from images.api import Bind, Image, ImageFault

SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32")
SBIN = ("ldconfig", "ldconfig.real")
"""Docker mounts its init at /sbin/docker-init: /sbin must be a real folder, and what Triton runs there a link."""
ENGINE_FOLDERS = ("proc", "sys", "dev", "tmp", "etc", "sbin")
REPOSITORY = "assay-host"
ETC = Path(__file__).parent / "etc"
DRIVER = Path("/proc/driver/nvidia/version")

PROBE = """
import hashlib, importlib.metadata as m, json, sys
def dist(name):
    try: d = m.distribution(name)
    except m.PackageNotFoundError: return None
    record = d.read_text("RECORD") or d.read_text("METADATA") or ""
    return {"version": d.version, "record": hashlib.sha256(record.encode()).hexdigest()}
print(json.dumps({"version": sys.version.split()[0], "prefix": sys.prefix, "base_prefix": sys.base_prefix,
    "exec_prefix": sys.base_exec_prefix, "path": [p for p in sys.path if p],
    "dists": {n: dist(n) for n in ("torch", "triton", "numpy", "cuda-bindings")}}))
"""


def host_image(guest_python: Path, *, docker: bool | None = None) -> Image:
    """The host image around one interpreter, which can import torch and triton.

    `docker`: make Docker's empty image too (None: when a daemon answers). Raises ImageFault when the interpreter does
    not run, or has no torch or triton.
    """
    python = Path(os.path.abspath(guest_python))  # not resolved: an environment is found through its own link
    facts = _probe(python)
    binds = tuple(_binds(python, facts))
    manifest = _manifest(python, facts)
    digest = "sha256:" + hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return Image(
        name="host",
        digest=digest,
        python=str(python),
        engine_ref=_docker_image(binds, required=bool(docker)) if docker is not False else None,
        binds=binds,
        env=_environment(python, binds),
        manifest=manifest,
    )


def _probe(python: Path) -> dict[str, Any]:
    """Ask the interpreter (the user's own, not a candidate's) what it is."""
    try:
        said = subprocess.run(
            [python, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=True, env={}
        )
        facts: dict[str, Any] = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        raise ImageFault(f"guest interpreter {python} does not run: {error}") from error
    if missing := [name for name in ("torch", "triton") if facts["dists"][name] is None]:
        raise ImageFault(f"guest interpreter {python} has no {' and no '.join(missing)}")
    return facts


def _binds(python: Path, facts: Mapping[str, Any]) -> Iterator[Bind]:
    """Each host path once, parents before children, nothing twice."""
    shown: list[PurePosixPath] = []
    for name in SYSTEM:
        if os.path.isdir(name) and not os.path.islink(name):
            shown.append(PurePosixPath(name))
            yield Bind(Path(name), name)
    wanted = [
        facts["prefix"],
        facts["base_prefix"],
        facts["exec_prefix"],
        *map(str, _link_homes(python)),
        *facts["path"],
    ]
    wanted += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for text in sorted({os.path.normpath(w) for w in wanted if w.startswith("/")}, key=lambda t: (t.count("/"), t)):
        for path in dict.fromkeys((PurePosixPath(text), PurePosixPath(os.path.realpath(text)))):
            if os.path.isdir(path) and not any(path.is_relative_to(s) for s in shown) and len(path.parts) > 2:
                shown.append(path)
                yield Bind(Path(os.path.realpath(path)), str(path))
    if os.path.isfile("/etc/ld.so.cache"):
        yield Bind(Path("/etc/ld.so.cache"), "/etc/ld.so.cache")
    yield Bind(ETC / "passwd", "/etc/passwd")
    yield Bind(ETC / "group", "/etc/group")


def _link_homes(python: Path) -> Iterator[Path]:
    """The folder of each hop of the interpreter's chain of links, as a prefix (`<prefix>/bin/python`)."""
    hop = python
    while hop.is_symlink():
        hop = Path(os.path.normpath(hop.parent / hop.readlink()))
        yield hop.parent.parent


def _environment(python: Path, binds: tuple[Bind, ...]) -> dict[str, str]:
    env = {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"}
    targets = [PurePosixPath(bind.target) for bind in binds]
    libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.startswith("/") and os.path.isdir(p)]
    if seen := [p for p in libraries if any(PurePosixPath(p).is_relative_to(t) for t in targets)]:
        env["LD_LIBRARY_PATH"] = ":".join(seen)
    return env


def _manifest(python: Path, facts: Mapping[str, Any]) -> dict[str, str]:
    manifest = {
        "interpreter": str(python),
        "python": facts["version"],
        "python_sha256": hashlib.sha256(Path(os.path.realpath(python)).read_bytes()).hexdigest(),
    }
    for name, dist in facts["dists"].items():
        if dist:
            manifest |= {name: dist["version"], f"{name}_record_sha256": dist["record"]}
    if DRIVER.exists():
        manifest["driver"] = DRIVER.read_text().splitlines()[0]
    return manifest


def _docker_image(binds: tuple[Bind, ...], *, required: bool) -> str | None:
    """The ID of the empty image with these mount points, imported once and found again by the digest of its content."""
    if not required and engine.daemon_pid() is None:
        return None
    content = _skeleton(binds)
    tag = hashlib.sha256(content).hexdigest()[:16]
    with closing(engine.connect()) as client, engine.translated("Docker's empty image"):
        if not client.images(f"{REPOSITORY}:{tag}"):
            client.import_image_from_data(content, repository=REPOSITORY, tag=tag)
        return engine.image_id(client, f"{REPOSITORY}:{tag}")


def _skeleton(binds: tuple[Bind, ...]) -> bytes:
    """A tar of mount points and the host's top-level links; the same bytes for the same binds."""
    links = {name.lstrip("/"): os.readlink(name) for name in SYSTEM if os.path.islink(name)}
    links |= {f"sbin/{name}": f"/usr/sbin/{name}" for name in SBIN}
    folders: set[str] = set(ENGINE_FOLDERS)
    files: set[str] = set()
    for bind in binds:
        path = PurePosixPath(bind.target.lstrip("/"))
        folders |= {str(parent) for parent in path.parents if str(parent) != "."}
        (files if bind.source.is_file() else folders).add(str(path))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in sorted(folders):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name in sorted(files):
            tar.addfile(tarfile.TarInfo(name))
        for name, to in sorted(links.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            tar.addfile(entry)
    return out.getvalue()
