"""Ten hostile candidates through a real measurement unit on each engine: the expected end, nothing left behind, and right
afterwards a good candidate that scores normally."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cheats

from eventstore.facts import Pair
from images.api import ImageFault
from images.engine import connect
from images.host import host_image
from ops import registry
from ops.decide.reasons import of_call
from runner import bundle as bundles
from runner.bundle import Bundle
from runner.lab import Arm, PairPlan
from runner.sandboxlab import SandboxLab
from sandbox.find import find

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))
CANARY = "canary-7f3a91c2-of-the-launcher"

WRAP = """
import os as _os
_compute = rmsnorm
def rmsnorm(x, weight):
    _hostile()
    return _compute(x, weight)
"""

ATTEMPTS = '''
def _escaped(what, attempt):
    """Every attempt must fail; one that works is told by the only way out that a guest has, an error text."""
    try:
        found = attempt()
    except Exception:
        return
    if found:
        raise RuntimeError("ESCAPED: " + what)
'''

HOSTILE: dict[str, str] = {
    "fork-bomb": """
def _hostile():
    while True:
        try:
            _os.fork()
        except OSError:
            pass
""",
    "memory-bomb": """
def _hostile():
    held = []
    while True:
        held.append(bytearray(64 << 20))
""",
    "disk-bomb": """
def _hostile():
    chunk = bytes(1 << 20)
    for place in ("/tmp", "/dev/shm", "/out", "/bundle", "/"):
        try:
            with open(place + "/bomb", "wb") as file:
                while True:
                    file.write(chunk)
        except OSError as error:
            last = error
    raise last
""",
    "endless-loop": """
import signal as _signal
def _hostile():
    for number in range(1, 65):
        try:
            _signal.signal(number, _signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass
""",
    "output-flood": """
def _hostile():
    line = b"x" * (1 << 20)
    for _ in range(1024):
        _os.write(1, line)
""",
    "network": ATTEMPTS
    + """
import socket as _socket
def _hostile():
    for family, kind, address in (
        (_socket.AF_INET, _socket.SOCK_STREAM, ("127.0.0.1", PORT)),
        (_socket.AF_INET6, _socket.SOCK_STREAM, ("::1", PORT)),
    ):
        _escaped("tcp", lambda: _socket.socket(family, kind).connect(address) is None)
    _escaped("dns", lambda: _socket.getaddrinfo("example.com", 80))
    _escaped("vsock", lambda: _socket.socket(40, _socket.SOCK_STREAM))
    _escaped("packet", lambda: _socket.socket(17, _socket.SOCK_RAW))
    _escaped("alg", lambda: _socket.socket(38, _socket.SOCK_SEQPACKET))
    _escaped("docker", lambda: _socket.socket(_socket.AF_UNIX).connect("/var/run/docker.sock") is None)
""",
    "bundle-writer": ATTEMPTS
    + """
def _hostile():
    for path in ("/bundle/kernel.py", "/bundle/new", "/link/new", "/shim/main.py", "/usr/new", "/etc/passwd"):
        _escaped("write " + path, lambda: open(path, "ab").write(b"#"))
        _escaped("unlink " + path, lambda: _os.unlink(path) is None)
        _escaped("chmod " + path, lambda: _os.chmod(path, 0o777) is None)
        _escaped("rename " + path, lambda: _os.rename(path, path + ".moved") is None)
    import ctypes
    libc = ctypes.CDLL(None)
    _escaped("remount", lambda: libc.mount(None, b"/bundle", None, 4096 | 32, None) == 0)
    _escaped("unshare", lambda: libc.unshare(0x10000000) == 0)
""",
    "host-reader": ATTEMPTS
    + """
def _hostile():
    def holds(path):
        with open(path, "rb") as file:
            return b"CANARY" in file.read(1 << 20)
    for number in _os.listdir("/proc"):
        if number.isdigit():
            _escaped("environment of " + number, lambda: holds(f"/proc/{number}/environ"))
            _escaped("arguments of " + number, lambda: holds(f"/proc/{number}/cmdline"))
    _escaped("own environment", lambda: any("CANARY" in value for value in _os.environ.values()))
    for path in ("/etc/shadow", "/root/.bashrc", "/task/task.py", "/judge/ops/judge/main.py", "SECRET"):
        _escaped("read " + path, lambda: open(path, "rb").read())
    _escaped("root", lambda: _os.getuid() == 0 or _os.geteuid() == 0)
    _escaped("other processes", lambda: any(
        b"judge/main.py" in open(f"/proc/{n}/cmdline", "rb").read() for n in _os.listdir("/proc") if n.isdigit()
    ))
""",
    "daemon": """
def _hostile():
    if _os.fork() == 0:
        _os.setsid()
        if _os.fork() == 0:
            import signal, time
            for number in (1, 2, 3, 15):
                signal.signal(number, signal.SIG_IGN)
            end = time.monotonic() + 600
            while time.monotonic() < end:
                pass
        _os._exit(0)
""",
}
EXPECTED: dict[str, tuple[str, ...]] = {
    "fork-bomb": ("pids-limit", "call-timeout", "crashed", "not-frozen"),
    "memory-bomb": ("out-of-memory",),
    "disk-bomb": ("crashed", "out-of-memory"),
    "endless-loop": ("call-timeout",),
    "output-flood": ("output-limit",),
    "network": ("",),
    "bundle-writer": ("",),
    "host-reader": ("",),
    "daemon": ("",),
    "forged-result": ("crashed", "protocol"),
}
"""How each ends: the reason of a rejection, or "" where the attempt fails inside and the honest rest is right."""


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundles.from_files(registry.get("rmsnorm").bundle(cheats.SHAPE, "fp32", "cpu"))


@pytest.fixture(scope="module", params=["docker", "bwrap"])
def lab(request: pytest.FixtureRequest) -> Iterator[SandboxLab]:
    os.environ["ASSAY_TEST_CANARY"] = CANARY
    yield SandboxLab(find(request.param), host_image(PYTHON), "cpu", memory_bytes=1 << 30)
    del os.environ["ASSAY_TEST_CANARY"]


def measured(lab: SandboxLab, bundle: Bundle, source: str, unit: str) -> Pair:
    arms = (Arm("baseline", bundle.kernel), Arm("candidate", source.encode()))
    plan = PairPlan(unit, arms, order_seed=1, verify_calls=2, alone_calls=2, blocks=3, calls=2, call_timeout_s=6.0)
    return lab.pair(bundle, plan)


def reason(pair: Pair) -> str:
    """The candidate's reason for its first call that was not right; "" when all were."""
    wrong = [why for series in pair.series if series.arm == "candidate" for why in series.why if why]
    return of_call(wrong[0], pair.outcomes["candidate"]) if wrong else ""


def speedup(pair: Pair) -> float:
    times = {
        arm: median(ns for s in pair.series if s.arm == arm and s.case == "main" and s.block >= 0 for ns in s.ns)
        for arm in ("baseline", "candidate")
    }
    return times["baseline"] / times["candidate"]


def left_behind(unit: str) -> list[str]:
    """Containers, cgroups, folders, mounts and processes of this unit that exist right now."""
    mine = f"/assay-{os.getpid()}-"
    found = [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if mine in line]
    found += [f"folder {path}" for path in Path(tempfile.gettempdir()).glob(f"assay-{os.getpid()}-*")]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").rglob(f"*{unit}*") if path.is_dir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                groups = (entry / "cgroup").read_text()
            except OSError:
                continue
            found += [f"process {entry.name}"] if unit in groups else []
    try:
        with closing(connect()) as api:
            found += [f"container {c['Names'][0]}" for c in api.containers(all=True, filters={"name": unit})]
    except ImageFault:
        pass  # then no container can exist
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hostile_candidate_ends_as_expected_and_the_next_good_one_scores_normally(
    lab: SandboxLab, bundle: Bundle, name: str, tmp_path: Path
) -> None:
    secret = tmp_path / "root-only"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    body = cheats.CHEATS[name] if name == "forged-result" else cheats.HONEST + HOSTILE[name] + WRAP
    source = body.replace("CANARY", CANARY).replace("SECRET", str(secret)).replace("PORT", "9")
    unit, after = f"hostile-{name}-{lab.sandbox.name}", f"good-after-{name}-{lab.sandbox.name}"
    pair = measured(lab, bundle, source, unit)
    assert reason(pair) in EXPECTED[name], (pair.claims, pair.outcomes)
    assert "ESCAPED" not in str(pair.claims)
    assert pair.bundle_intact
    assert left_behind(unit) == []
    good = measured(lab, bundle, cheats.FASTER, after)
    assert reason(good) == ""
    assert math.log(speedup(good)) > math.log(1.5), speedup(good)
    assert left_behind(after) == []
