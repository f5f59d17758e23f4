"""Is a built image still what was built? Everything is derived again, and each difference has a name.

Docker answers for an image by its ID and does not hash its layers again; somebody who can write to its storage can change a file
under the same ID. So the whole filesystem is read and hashed from outside and compared with what was recorded at the build.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from images import contents, cpu, engine, lock, sbom, steps
from images.api import Image, ImageFault


def differences(home: Path, name: str) -> list[str]:
    """One line for each; none: the image is what was built, from the lock that is here.

    Raises ImageFault when there is no such image, Docker does not have it, or it was built without a record of its contents.
    """
    image = cpu.load(home, name)
    recorded, bill, found = _records(home, image)
    with closing(engine.connect(steps.LONG_S)) as client, engine.translated(f"reading image {name}"):
        now = contents.read(client, image.digest, (sbom.DPKG_STATUS,))
    found += contents.differences(recorded, now.entries)
    found += _bill_differences(bill, now)
    if image.manifest.get("lock") != lock.digest(name):
        found.append(f"lock: built from {image.manifest.get('lock')}, here is {lock.digest(name)}")
    return found


def _records(home: Path, image: Image) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """What was written at the build, and a line for each file that is no longer what was written."""
    documents, changed = [], []
    for key, name in (("contents_sha256", "contents.json"), ("sbom_sha256", "sbom.json")):
        file = cpu.record_folder(home, image.digest) / name
        if key not in image.manifest:
            raise ImageFault(f"image {image.name} was built without {name}: build it again (assay image build)")
        try:
            text = file.read_bytes()
            document = json.loads(text)
        except (OSError, ValueError) as error:
            raise ImageFault(f"{file}: {error}") from error
        if not isinstance(document, dict):
            raise ImageFault(f"{file}: not an object")
        if hashlib.sha256(text).hexdigest() != image.manifest[key]:
            changed.append(f"changed: the record {name}")
        documents.append(document)
    return documents[0], documents[1], changed


def _bill_differences(bill: Mapping[str, Any], now: contents.Contents) -> list[str]:
    """Packages that the bill of materials has and the image has not, and the other way round."""
    billed = {(part.get("name"), part.get("version")) for part in bill.get("components", ()) if isinstance(part, dict)}
    held = {(name, version) for name, version, _ in sbom.debian_packages(now.texts.get(sbom.DPKG_STATUS, ""))}
    held |= set(sbom.python_packages(now.entries))
    lines = [f"not in the bill of materials: {name} {version}" for name, version in held - billed]
    return sorted(lines + [f"in the bill of materials only: {name} {version}" for name, version in billed - held])
