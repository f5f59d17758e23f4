"""The software bill of materials of a built image: CycloneDX 1.5, as JSON.

Its components are read from the image, not from what we meant to install: Debian's packages from dpkg's own status file, Python's
from the folders that an installer leaves. A Python component carries the SHA-256 of its wheel where the lock has it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from images.lock import Pin

DPKG_STATUS = "var/lib/dpkg/status"
OS_RELEASE = "usr/lib/os-release"
DIST_INFO = re.compile(r".*/site-packages/([^/]+)-([^/-]+)\.dist-info/METADATA")
NAMESPACE = uuid.UUID("6f1f5d0e-8c86-4b8c-9d0a-2f3f7f0c6a51")
"""Of serial numbers: an image has one, whoever writes it."""


def debian_packages(status: str) -> list[tuple[str, str, str]]:
    """Name, version and architecture of every installed package of a dpkg status file, sorted."""
    found = []
    for stanza in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status", "").endswith(" installed"):
            found.append((fields["Package"], fields["Version"], fields["Architecture"]))
    return sorted(found)


def python_packages(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Normalised name and version of every Python distribution among an image's paths, sorted."""
    matches = (DIST_INFO.fullmatch(path) for path in paths)
    return sorted({(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]) for match in matches if match})


def document(
    name: str,
    digest: str,
    *,
    at: str,
    debian: Iterable[tuple[str, str, str]],
    suite: str,
    python: Iterable[tuple[str, str]],
    pins: Iterable[Pin],
    properties: Mapping[str, str],
) -> dict[str, Any]:
    """The document. `at` is UTC like 2026-01-31T12:00:00Z; `suite` Debian's codename; `properties` further digests."""
    hashes = {(pin.name, pin.version): pin.sha256 for pin in pins}
    components = [_python(called, version, hashes.get((called, version))) for called, version in python]
    components += [_debian(*package, suite) for package in debian]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": at,
            "tools": {"components": [{"type": "application", "name": "assay image build"}]},
            "component": {
                "type": "container",
                "bom-ref": f"image:{digest}",
                "name": f"assay-{name}",
                "version": digest,
                "properties": [{"name": f"assay:{key}", "value": value} for key, value in sorted(properties.items())],
            },
        },
        "components": components,
    }


def _python(name: str, version: str, sha256: str | None) -> dict[str, Any]:
    found = _component(name, version, f"pkg:pypi/{name}@{quote(version, safe='')}")
    return found | ({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {})


def _debian(name: str, version: str, architecture: str, suite: str) -> dict[str, Any]:
    where = f"arch={quote(architecture, safe='')}&distro={quote(suite, safe='')}"
    return _component(name, version, f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?{where}")


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
