"""Runs a few lines of judge-side code in the guest environment (the host's has no torch) and returns the JSON it prints."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("ASSAY_GUEST_PYTHON", str(ROOT / ".guest" / "bin" / "python"))


def run(code: str) -> Any:
    """The last line of stdout, parsed. A failure of the code is a failure of the test, with its stderr."""
    prefix = f"import sys, json; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run([PYTHON, "-I", "-c", prefix + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
