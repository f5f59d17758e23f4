"""The shipped suite holds on both engines, and sees it when the sandbox has a hole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from images.host import host_image
from runner.check.attempt import Bench
from runner.check.platform import FAULTS
from runner.check.table import ROWS
from sandbox import policy
from sandbox.find import find

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))


@pytest.mark.parametrize("engine", ["docker", "bwrap"])
def test_all_is_as_expected(engine: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", "sandbox", "check", "--engine", engine, "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ASSAY_GUEST_PYTHON": str(PYTHON)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode in (0, 76), done.stderr
    rows = json.loads(done.stdout)["rows"]
    wrong = {row["name"]: (row["observed"], row["problems"]) for row in rows if row["verdict"] == "NO"}
    assert wrong == {}
    assert done.returncode == 0
    assert [row["name"] for row in rows if row["verdict"] == "ok"] == [
        *(row.name for row in ROWS if not row.needs),
        *(fault.name for fault in FAULTS if not fault.absent(engine)),
    ]


def test_a_sandbox_with_a_hole_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = policy.bwrap_argv
    monkeypatch.setattr(policy, "bwrap_argv", lambda *a, **k: [w for w in closed(*a, **k) if w != "--unshare-net"])
    row = next(row for row in ROWS if row.name == "network")
    result = Bench(find("bwrap"), host_image(PYTHON, docker=False)).attempt(row)
    assert result.verdict == "NO", result
    assert result.observed in ("policy_violation", "infra_error")
