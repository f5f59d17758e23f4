"""Blanks kept ready, so that a candidate's evaluation does not wait for imports.

A pool starts blanks while nothing is being timed (a proposal is awaited, a source is built) and gives each away once. While a
unit measures, those left over are frozen. When the bundle, the image, the driver or our own code is not what a blank was started
for, or it has waited too long, it is destroyed and never used.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from runner import devices
from runner.blank import Blank, Role, start
from runner.jobs import ROOT, Jobs
from sandbox.api import Sandbox, SandboxFault

IDLE_S = 900.0
"""A blank waits no longer for its unit; its container's wall clock allows for it."""
MOST = 8
"""Blanks at once, whatever is asked: each holds 200 to 300 MB."""
CODE = ("ops", "sandbox/guest")
"""What judge and guests run of ours, mounted from disk."""


@dataclass
class Pool:
    """Blanks of one sandbox, image and device. Not for several threads at once."""

    sandbox: Sandbox
    jobs: Jobs
    _blanks: list[tuple[str, Blank]] = field(default_factory=list)
    """Key and blank, oldest first."""
    _given: set[str] = field(default_factory=set)

    def fill(self, bundle: str, guests: int) -> None:
        """Start what is missing of one judge and `guests` guests for a bundle with this digest. Returns at once."""
        key = self.key(bundle)
        self._drop_unfit(key)
        for role, wanted in (("judge", 1), ("guest", guests)):
            have = sum(blank.role == role for _, blank in self._blanks)
            for _ in range(min(wanted, MOST - len(self._blanks)) - have):
                self._blanks.append((key, start(self.sandbox, self.jobs, role, IDLE_S)))  # type: ignore[arg-type]

    def take(self, role: Role, bundle: str) -> Blank:
        """A blank that was never given before: the oldest that fits, else one started now."""
        key = self.key(bundle)
        self._drop_unfit(key)
        fitting = [entry for entry in self._blanks if entry[1].role == role]
        if fitting:
            self._blanks.remove(fitting[0])
        blank = fitting[0][1] if fitting else start(self.sandbox, self.jobs, role)
        if blank.id in self._given:
            blank.close()
            raise SandboxFault(f"blank {blank.id} was given before: a container serves one arm once")
        self._given.add(blank.id)
        return blank

    @contextmanager
    def still(self) -> Iterator[None]:
        """Blanks that wait here do not run: something is being timed."""
        try:
            for _, blank in self._blanks:
                blank.running.freeze()
            yield
        finally:
            for _, blank in self._blanks:
                blank.running.thaw()

    def key(self, bundle: str) -> str:
        """Of all that a blank depends on: bundle, image, device, driver, and the files of ours that it runs."""
        digest = hashlib.sha256(f"{bundle}|{self.jobs!r}|{devices.driver(self.jobs.gpu)}".encode())
        for folder in CODE:
            for path in sorted((ROOT / folder).rglob("*.py")):
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    def close(self) -> None:
        """Destroy all that wait here."""
        while self._blanks:
            self._blanks.pop()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drop_unfit(self, key: str) -> None:
        for entry in list(self._blanks):
            blank = entry[1]
            if entry[0] == key and time.monotonic() - blank.born < IDLE_S and blank.running.poll() is None:
                continue
            self._blanks.remove(entry)
            blank.close()
