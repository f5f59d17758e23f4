"""The writers' lock: a side file under flock, taken before SQLite's own lock because that one has no queue and starves.

It is advisory and dies with its holder, so a killed writer leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventstore.errors import StoreLocked

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01


class WriterLock:
    """An exclusive lock among processes (and among openers inside one). Not for several threads of one opener."""

    def __init__(self, path: Path, wait_s: float) -> None:
        self.path = path
        self.wait_s = wait_s
        self._file = path.open("ab")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock inside the block. Raises StoreLocked after `wait_s` seconds of waiting."""
        self._take()
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the file; closing twice is harmless."""
        self._file.close()

    def _take(self) -> None:
        deadline = time.monotonic() + self.wait_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    message = f"{self.path} is held by another process (waited {self.wait_s:g} s)"
                    raise StoreLocked(message) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
