"""What this machine offers to tests that need more than Python: each absence is one clear reason to skip.

Where a machine has promised to offer it (`ASSAY_REQUIRE="docker,bwrap,guest"`, as CI does), an absence ends the session
at once and a skip of such a test is a failure: a suite that quietly tested nothing must not look green.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NEEDY = ("sandbox", "guest", "conformance")
"""Markers of tests that must not be skipped where the machine has promised."""


def guest_python() -> Path:
    """The interpreter that has torch and triton."""
    return Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))


def lacks_root() -> str:
    return "" if os.geteuid() == 0 else "root is needed to make containers"


def lacks_docker() -> str:
    from images import engine
    from images.api import ImageFault

    try:
        engine.connect(timeout_s=10).close()
    except ImageFault as fault:
        return str(fault)
    return ""


def lacks_bwrap() -> str:
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed"
    tried = subprocess.run(
        ["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "true"], capture_output=True, timeout=20, check=False
    )
    return "" if tried.returncode == 0 else f"bubblewrap does not work here: {tried.stderr.decode(errors='replace')!r}"


def lacks_guest() -> str:
    found = guest_python()
    return "" if os.access(found, os.X_OK) else f"no guest environment at {found.name}; `make setup` makes it"


def lacks_gpu() -> str:
    return "" if Path("/dev/nvidiactl").exists() else "no NVIDIA GPU"


LACKS: dict[str, Callable[[], str]] = {
    name: functools.cache(probe)
    for name, probe in {
        "root": lacks_root,
        "docker": lacks_docker,
        "bwrap": lacks_bwrap,
        "guest": lacks_guest,
        "gpu": lacks_gpu,
    }.items()
}
"""Name of what may be absent -> a probe that returns the reason, or nothing when it is there."""


def required() -> tuple[str, ...]:
    """What `ASSAY_REQUIRE` promises."""
    return tuple(name.strip() for name in os.environ.get("ASSAY_REQUIRE", "").split(",") if name.strip())


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user's shell says about its terminal and home decides no test."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "ASSAY_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def processes() -> Callable[[str], list[str]]:
    """Ids of the processes that have a text in their command line; what `pgrep -f` does, where there is none."""

    def found(text: str) -> list[str]:
        hits = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended while we looked
            if text in line and int(folder.name) != os.getpid():
                hits.append(folder.name)
        return hits

    return found


def needs(item: pytest.Item) -> list[str]:
    """What one test needs, from its markers and from its `engine` parameter."""
    found = ["gpu"] if item.get_closest_marker("gpu") else []
    if item.get_closest_marker("guest"):
        found += ["guest"]
    if item.get_closest_marker("sandbox") or item.get_closest_marker("conformance"):
        found += ["root", "guest"]
        engine = getattr(item, "callspec", None) and item.callspec.params.get("engine")  # type: ignore[attr-defined]
        found += [engine] if engine in ("docker", "bwrap") else []
    return found


def pytest_sessionstart() -> None:
    # whoever starts us in the background ignores the interrupt, and Python then never raises KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unknown = [name for name in required() if name not in LACKS]
    if unknown:
        raise pytest.UsageError(f"ASSAY_REQUIRE names {unknown}; known are {sorted(LACKS)}")
    absent = {name: reason for name in required() if (reason := LACKS[name]())}
    if absent:
        raise pytest.UsageError(f"ASSAY_REQUIRE promises what this machine lacks: {absent}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reasons = [reason for name in needs(item) if (reason := LACKS[name]())]
        if reasons:
            item.add_marker(pytest.mark.skip(reason="; ".join(reasons)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    promised = bool(required()) and not item.get_closest_marker("gpu")
    if report.skipped and promised and any(item.get_closest_marker(name) for name in NEEDY):
        report.outcome = "failed"
        report.longrepr = f"skipped although ASSAY_REQUIRE promises what it needs: {report.longrepr}"
    return report
