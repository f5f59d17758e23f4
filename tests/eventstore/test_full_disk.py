"""A full disk is a typed error: what was acknowledged is stored, reads go on, and appending goes on when there is space."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from eventstore.errors import StoreFull
from eventstore.facts import Faulted
from eventstore.log import Log
from eventstore.store import ANY
from eventstore.verify import examine

ROOT = Path(__file__).resolve().parents[2]
SIZE = 2 * 1024 * 1024


def fault(n: int) -> Faulted:
    return Faulted(stage="test", detail="x" * 2000, attempt=n)


def fill(log: Log) -> int:
    """Append until the disk is full; the number acknowledged."""
    for n in range(10_000):
        try:
            log.append("ep", [fault(n), fault(n)], expected=2 * n)
        except StoreFull:
            return 2 * n
    raise AssertionError("the disk was never full")


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)]
    if (done := subprocess.run(mount, capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_what_was_acknowledged_before_the_disk_was_full_is_stored(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SIZE // 4))
    with Log.open(small_disk / "home") as log:
        acknowledged = fill(log)
        assert [event.fact.attempt for event in log.read()] == [n // 2 for n in range(acknowledged)]
        with pytest.raises(StoreFull):
            log.blobs.put(bytes(SIZE))
        assert not list((small_disk / "home" / "blobs" / "tmp").iterdir())
        ballast.unlink()
        log.append("ep", [fault(0)], expected=acknowledged)
    report = examine(small_disk / "home")
    assert (report.ok, report.events, report.problems) == (True, acknowledged + 1, ())
    assert acknowledged > 50


def test_a_log_cannot_be_begun_on_a_full_disk(small_disk):
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(bytes(2 * SIZE))
    with pytest.raises(StoreFull, match="no space left"):
        Log.open(small_disk / "home")
    (small_disk / "ballast").unlink()
    with Log.open(small_disk / "home") as log:  # what the first try left is no obstacle
        assert log.append("ep", [fault(0)], expected=ANY)[0].position == 1


def test_a_file_size_limit_is_a_full_disk_too(tmp_path):
    program = """
import sys
from pathlib import Path
from eventstore.errors import StoreFull
from eventstore.facts import Faulted
from eventstore.store import Store
store = Store.open(Path(sys.argv[1]))
try:
    for n in range(10_000):
        store.append("ep", [Faulted(stage="test", detail="x" * 2000, attempt=n)], expected=n)
except StoreFull as error:
    print(n, len(list(store.read())))
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, SIZE)),
    )
    assert done.stderr == ""
    acknowledged, read = map(int, done.stdout.split())
    assert acknowledged == read > 50
    report = examine(tmp_path)
    # one flush may fail after the commit's last byte was written: then an event more is stored, never one less
    assert (report.ok, report.events - acknowledged in (0, 1)) == (True, True)
