"""What an image is to the sandbox: where Python lives inside, what is bound read-only, and the digest that names it.

Two kinds share this one shape. A *built* image has its own root filesystem under an engine's image ID. The *host image* is an
empty root over which the host's system directories and the guest environment are bound read-only; its identity is its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


class ImageFault(Exception):
    """An image could not be found, built or verified. Ours, never the candidate's."""


@dataclass(frozen=True)
class Bind:
    """A host path shown read-only inside every container of an image."""

    source: Path
    target: str


@dataclass(frozen=True)
class Image:
    """One pinned root filesystem in which judges and guests run."""

    name: str
    """`host` or `cpu`: what a person calls it."""
    digest: str
    """`sha256:...` of the engine's image, or of the host image's manifest."""
    python: str
    """Absolute path of the interpreter inside; it can import torch and triton."""
    engine_ref: str | None = None
    """The engine's image ID for Docker; None where an engine without images (bubblewrap) is enough."""
    binds: tuple[Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """PATH and LD_LIBRARY_PATH as this image needs them. Nothing else of the host's environment."""
    manifest: Mapping[str, str] = field(default_factory=dict)
    """Recorded facts: interpreter, torch, triton, driver versions, digests of what is bound."""
