"""A suite that skipped everything must not look green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
CONFIG = """
[pytest]
markers =
    sandbox: x
    guest: x
    conformance: x
    gpu: x
"""


def run(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "tests").mkdir()
    (folder / "pytest.ini").write_text(CONFIG)
    (folder / "tests" / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "tests" / "test_it.py").write_text("import pytest\n" + test)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ASSAY_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(folder)],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


GUEST_TEST = "@pytest.mark.guest\ndef test_it(): pass\n"
SKIPS_ITSELF = "@pytest.mark.guest\ndef test_it(): pytest.skip('not today')\n"


def test_an_absence_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    done = run(tmp_path, GUEST_TEST, ASSAY_GUEST_PYTHON=str(tmp_path / "none"))
    assert (done.returncode, "no guest environment" in done.stdout, "1 skipped" in done.stdout) == (0, True, True)


def test_a_promised_absence_ends_the_session(tmp_path: Path) -> None:
    done = run(tmp_path, GUEST_TEST, ASSAY_GUEST_PYTHON=str(tmp_path / "none"), ASSAY_REQUIRE="guest")
    assert (done.returncode, "promises what this machine lacks" in done.stderr) == (4, True)


def test_a_test_that_skips_itself_fails_where_the_machine_has_promised(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS_ITSELF, ASSAY_GUEST_PYTHON=sys.executable, ASSAY_REQUIRE="guest")
    assert (done.returncode, "1 failed" in done.stdout) == (1, True)


def test_a_test_may_skip_itself_where_nothing_is_promised(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS_ITSELF, ASSAY_GUEST_PYTHON=sys.executable)
    assert (done.returncode, "1 skipped" in done.stdout) == (0, True)


def test_a_misspelt_promise_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, GUEST_TEST, ASSAY_REQUIRE="dokcer")
    assert (done.returncode, "dokcer" in done.stderr) == (4, True)
