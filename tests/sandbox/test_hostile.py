"""Ten hostile programs, each with what must come of it; after each a good job works, and nothing is left or changed.

The tenth of the project's list, a forged result, is no matter of containers: it is tested where results are read.
"""

from __future__ import annotations

import hashlib
import json
import resource
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.api import Job, Limits, Mount

pytestmark = [pytest.mark.sandbox, pytest.mark.conformance, pytest.mark.usefixtures("nothing_left")]

HOSTILE = Path(__file__).parents[2] / "runner" / "check" / "programs"
CANARY = "canary-91d7"


@dataclass(frozen=True)
class Attack:
    program: str
    status: dict[str, tuple[str, int | None, int | None]]
    """By engine: status, exit code, signal."""
    limits: dict[str, Any] = field(default_factory=dict)


def alike(
    status: str, code: int | None = None, signal: int | None = None
) -> dict[str, tuple[str, int | None, int | None]]:
    return {"docker": (status, code, signal), "bwrap": (status, code, signal)}


ATTACKS = (
    Attack("fork_bomb", alike("pids-limit", 1), {"pids": 64}),
    Attack("memory_bomb", alike("oom", None, 9), {"memory_bytes": 128 << 20}),
    Attack("disk_bomb", alike("exited", 0), {"tmp_bytes": 64 << 20, "shm_bytes": 16 << 20}),
    Attack("inode_bomb", alike("exited", 3), {"memory_bytes": 64 << 20}),
    Attack("deaf_loop", alike("timeout"), {"wall_s": 2.0}),
    Attack("flood", alike("output-limit")),
    Attack("network", alike("exited", 0)),
    Attack("bundle_write", alike("exited", 0)),
    Attack("snoop", alike("exited", 0)),
    Attack("daemon", alike("exited", 0)),
)


@pytest.fixture
def bundle(tmp_path):
    """A bundle that its file modes would let anybody change; only the container stands before it."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "kernel.py").write_text("def kernel(): ...\n")
    (folder / "kernel.py").chmod(0o666)
    folder.chmod(0o777)
    return folder


def digest(folder: Path) -> str:
    names = sorted(p.name for p in folder.iterdir())
    return hashlib.sha256(
        repr([(n, (folder / n).read_bytes(), (folder / n).stat().st_mode) for n in names]).encode()
    ).hexdigest()


class Listener:
    """A TCP port and an abstract Unix socket of the host; counts who comes."""

    def __init__(self) -> None:
        self.visitors = 0
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._unix = socket.socket(socket.AF_UNIX)
        self.name = f"assay-test-{id(self)}"
        self._unix.bind("\0" + self.name)
        self._unix.listen()
        self.port = self._tcp.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve, args=(s,), daemon=True) for s in (self._tcp, self._unix)]
        for thread in self._threads:
            thread.start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return
            self.visitors += 1

    def close(self) -> None:
        for server in (self._tcp, self._unix):
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def listener():
    listening = Listener()
    yield listening
    listening.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.program)
def test_a_hostile_program_gets_its_status_and_leaves_nothing(
    attack, engine, sandbox, image, bundle, listener, tmp_path, monkeypatch
):
    monkeypatch.setenv("ASSAY_SECRET", CANARY)
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    secret.chmod(0o600)
    before, memory_before = digest(bundle), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arguments = {"network": (str(listener.port), listener.name), "snoop": (str(secret), "/bundle/kernel.py")}

    outcome = sandbox.run(
        Job(
            name=f"assay-hostile-{attack.program.replace('_', '-')}-{engine}",
            role="guest",
            argv=("-I", f"/hostile/{attack.program}.py", "-", *arguments.get(attack.program, ())),
            image=image,
            mounts=(Mount(HOSTILE, "/hostile"), Mount(bundle, "/bundle")),
            limits=Limits(**({"wall_s": 30.0, "memory_bytes": 512 << 20} | attack.limits)),
        )
    )
    said = outcome.stdout.text()
    assert (outcome.status, outcome.exit_code, outcome.signal) == attack.status[engine], outcome
    CHECKS.get(attack.program, lambda *_: None)(said, outcome)

    assert CANARY not in said + outcome.stderr.text()
    assert digest(bundle) == before
    assert listener.visitors == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 64 << 10  # KiB: output is not hoarded
    good = sandbox.run(
        Job(f"assay-good-{engine}", "guest", ("-I", "-c", "print(6 * 7)"), image, limits=Limits(wall_s=20))
    )
    assert (good.status, good.exit_code, good.stdout.head) == ("exited", 0, b"42\n")


def check_fork_bomb(said, outcome):
    assert outcome.pids_refused >= 50


def check_disk_bomb(said, outcome):
    full = json.loads(said)
    assert {full[folder][1] for folder in ("/", "/usr", "/bundle", "/dev")} <= {"EROFS", "EACCES"}
    assert [full[folder][1] for folder in ("/dev/shm", "/tmp")] == ["ENOSPC", "ENOSPC"]
    assert [full[folder][0] for folder in ("/", "/usr", "/bundle", "/dev", "/dev/shm", "/tmp")] == [0, 0, 0, 0, 16, 64]


def check_inode_bomb(said, outcome):
    number, reason = said.split(maxsplit=1)
    assert (Limits().tmp_inodes - 8 < int(number) < Limits().tmp_inodes, reason) == (True, "No space left on device\n")


def check_network(said, outcome):
    answers = json.loads(said)
    assert len(answers) == 16
    assert "reached" not in answers.values(), answers


def check_bundle_write(said, outcome):
    answers = json.loads(said)
    assert len(answers) == 17
    assert set(answers.values()) <= {"EROFS", "EACCES", "EPERM", "EXDEV"}, answers


def check_snoop(said, outcome):
    assert "/bundle/kernel.py def kernel()" in said  # it can read, where it may
    assert "shadow" not in said


def check_daemon(said, outcome):
    assert said == "all well\n"


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}
