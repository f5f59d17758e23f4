"""Input seeds nobody can predict: HMAC of a secret that exists only inside this process until every guest is dead."""

from __future__ import annotations

import hashlib
import hmac
import os

import torch


class Seeds:
    """One secret for one measurement; call n of it gets seed HMAC-SHA256(secret, n)."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def generator(self, label: str, device: str) -> torch.Generator:
        """A fresh generator on `device`. `label` is the call number, or names a decoy that is never released."""
        generator = torch.Generator(device=device)
        generator.manual_seed(seed(self._secret, label))
        return generator

    def reveal(self) -> str:
        """Hex; for the log, once no guest of this measurement lives."""
        return self._secret.hex()


def seed(secret: bytes, label: str) -> int:
    """63-bit seed of one call: re-derivable by anyone once the secret is in the log."""
    return int.from_bytes(hmac.new(secret, label.encode(), hashlib.sha256).digest()[:8], "big") >> 1
