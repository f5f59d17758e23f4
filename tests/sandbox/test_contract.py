"""What every engine promises, on real containers."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.api import Captured, Job, Limits, Mount, Outcome, SandboxFault
from sandbox.cgroups import Group
from sandbox.policy import JobRefused

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("nothing_left")]

DEAF = """
import signal
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
"""
COUNTING = """
import sys, time
n = 0
while True:
    n += 1
    with open("/out/count", "w") as f: f.write(str(n))
    time.sleep(0.002)
"""


def seen(outcome: Outcome) -> tuple[object, ...]:
    return outcome.status, outcome.exit_code, outcome.signal


def test_a_good_job_ends_with_its_output_and_its_counters(run):
    outcome = run("import sys; print('out'); print('err', file=sys.stderr)")
    assert seen(outcome) == ("exited", 0, None)
    assert outcome.stdout == Captured(seen=4, head=b"out\n")
    assert outcome.stderr == Captured(seen=4, head=b"err\n")
    assert (outcome.oom_kills, outcome.pids_refused) == (0, 0)
    assert 0 < outcome.cpu_s < outcome.wall_s + 1
    assert 1 << 20 < outcome.memory_peak_bytes < 512 << 20


def test_torch_and_triton_import_and_work(run):
    outcome = run("import torch, triton; print(int(torch.ones(3).sum()))", memory_bytes=2 << 30, wall_s=120)
    assert (seen(outcome), outcome.stdout.head) == (("exited", 0, None), b"3\n"), outcome.stderr.text()


def test_exit_codes_are_exact(run):
    assert [seen(run(f"import sys; sys.exit({code})")) for code in (1, 77)] == [("exited", c, None) for c in (1, 77)]


def test_a_death_by_signal_names_the_signal(run):
    outcome = run("import ctypes; ctypes.string_at(0)")
    assert seen(outcome) == ("signalled", None, 11)


def test_a_loop_that_ignores_every_signal_is_killed_in_time(run):
    began = time.monotonic()
    outcome = run(DEAF, wall_s=1.0)
    assert seen(outcome) == ("timeout", None, None)
    assert 1.0 <= outcome.wall_s < 4.0
    assert time.monotonic() - began < 12.0


def test_the_wall_clock_kills_even_if_nobody_waits(sandbox, job):
    with sandbox.start(job(DEAF, wall_s=0.5)) as running:
        deadline = time.monotonic() + 10
        while running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert seen(running.poll()) == ("timeout", None, None)


def test_wait_gives_up_after_its_own_timeout_and_kills(sandbox, job):
    with sandbox.start(job(DEAF)) as running:
        assert running.wait(0.3).status == "timeout"


def test_kill_is_idempotent_and_says_killed(sandbox, job):
    with sandbox.start(job(DEAF)) as running:
        assert running.poll() is None
        first = running.kill()
        assert (first.status, running.kill(), running.wait(1), running.poll()) == ("killed", first, first, first)


def test_a_kill_after_the_end_reports_the_end(sandbox, job):
    with sandbox.start(job("print('done')")) as running:
        ended = running.wait(20)
        assert (ended.status, running.kill()) == ("exited", ended)


def test_leaving_the_block_destroys_a_running_container_also_on_an_error(sandbox, job):
    with pytest.raises(KeyError), sandbox.start(job(DEAF)) as running:
        raise KeyError("in the caller")
    assert running.poll().status == "killed"


def test_frozen_means_stopped_and_thawed_means_going_on(sandbox, job, tmp_path):
    out = writable(tmp_path)
    with sandbox.start(counting(job, out)) as running:
        wait_for(lambda: count(out) > 0)
        for _ in range(5):
            running.freeze()
            before = count(out)
            time.sleep(0.1)
            assert count(out) == before
            running.thaw()
            wait_for(lambda before=before: count(out) > before)


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_docker_pauses_where_the_freezer_is_not_ours_to_write(sandbox, job, tmp_path, monkeypatch):
    def refuse(group):
        raise PermissionError(30, "read-only")

    monkeypatch.setattr(Group, "freeze", refuse)
    monkeypatch.setattr(Group, "thaw", refuse)
    out = writable(tmp_path)
    with sandbox.start(counting(job, out)) as running:
        wait_for(lambda: count(out) > 0)
        for _ in range(2):
            running.freeze()
            running.freeze()
            before = count(out)
            time.sleep(0.1)
            assert count(out) == before
            running.thaw()
            wait_for(lambda before=before: count(out) > before)
        running.freeze()
        assert running.kill().status == "killed"


def test_freezing_twice_and_thawing_a_running_container_are_harmless(sandbox, job, tmp_path):
    out = writable(tmp_path)
    with sandbox.start(counting(job, out)) as running:
        running.thaw()
        running.freeze()
        running.freeze()
        running.thaw()
        before = count(out)
        wait_for(lambda: count(out) > before)


def test_a_frozen_container_can_be_killed_and_times_out(sandbox, job):
    with sandbox.start(job(DEAF)) as running:
        running.freeze()
        assert running.kill().status == "killed"
        running.freeze()  # it has ended: nothing to do
        running.thaw()
    with sandbox.start(job(DEAF, wall_s=0.7)) as running:
        running.freeze()
        assert running.wait(20).status == "timeout"


def test_freeze_and_thaw_cost_little(sandbox, job):
    with sandbox.start(job(DEAF)) as running:
        costs = []
        for _ in range(21):
            began = time.monotonic()
            running.freeze()
            running.thaw()
            costs.append(time.monotonic() - began)
    assert sorted(costs)[10] < 0.05  # median; measured 0.2 ms, the bound leaves room for a loaded machine


def test_memory_beyond_the_cap_is_oom_in_every_shape(run):
    alone = run("x = bytearray(1 << 30)", memory_bytes=128 << 20)
    child = run(
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'bytearray(1 << 30)']).returncode)",
        memory_bytes=128 << 20,
    )
    tmpfs = run("open('/tmp/x', 'wb').write(bytes(200 << 20))", memory_bytes=128 << 20, tmp_bytes=256 << 20)
    assert seen(alone) == ("oom", None, 9)
    assert (seen(child), child.stdout.head) == (("oom", 0, None), b"-9\n")
    assert seen(tmpfs) == ("oom", None, 9)


def test_the_process_limit_is_reported(run):
    outcome = run("import os\nwhile True:\n    if not os.fork(): __import__('time').sleep(20)", pids=32)
    assert (outcome.status, outcome.exit_code) == ("pids-limit", 1)
    assert outcome.pids_refused >= 1


def test_a_flood_of_output_is_cut_and_its_ends_are_kept(sandbox, job):
    code = "import os\nos.write(1, b'begin')\nwhile True: os.write(1, b'x' * 65536)"
    with sandbox.start(job(code, output_bytes=1 << 20, kept_bytes=1000)) as running:
        outcome = running.wait(20)
    assert outcome.status == "output-limit"
    assert (outcome.stdout.head[:7], len(outcome.stdout.head), len(outcome.stdout.tail)) == (b"beginxx", 1000, 1000)
    assert 1 << 20 < outcome.stdout.seen < 64 << 20


def test_a_short_flood_is_cut_too(run):
    outcome = run("import os; os.write(2, b'x' * 3000)", output_bytes=1000)
    assert outcome.status == "output-limit"


def test_both_streams_up_to_the_cap_are_fine(run):
    outcome = run("import os; os.write(1, b'o' * 1000); os.write(2, b'e' * 1000)", output_bytes=1000)
    assert (outcome.status, outcome.stdout.seen, outcome.stderr.seen) == ("exited", 1000, 1000)


def test_every_cap_is_seen_from_inside(run):
    code = (
        "import os, resource as r\n"
        "print([r.getrlimit(n) for n in (r.RLIMIT_NOFILE, r.RLIMIT_CORE, r.RLIMIT_FSIZE)])\n"
        "print(sorted(os.sched_getaffinity(0)))\n"
        "s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize)\n"
        "s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)"
    )
    outcome = run(code, open_files=99, file_bytes=5 << 20, cpus=(1,), tmp_bytes=8 << 20, shm_bytes=4 << 20)
    limits = [(99, 99), (0, 0), (5 << 20, 5 << 20)]
    assert outcome.stdout.text() == f"{limits}\n[1]\n{8 << 20}\n{4 << 20}\n"


def test_what_no_container_gets_is_refused_before_anything_starts(sandbox, job, image):
    for bad in (replace(job("pass"), env={"LD_PRELOAD": "/tmp/x.so"}), replace(job("pass"), uid=0)):
        with pytest.raises(JobRefused):
            sandbox.start(bad)
    rootless = replace(image, binds=(), engine_ref=None)  # no engine could run this
    with pytest.raises(JobRefused):
        sandbox.start(replace(job("pass"), image=rootless))


def test_a_mount_that_is_not_there_is_our_fault(sandbox, job, tmp_path):
    with pytest.raises(SandboxFault, match="is not a folder"):
        sandbox.start(job("pass", mounts=(Mount(tmp_path / "absent", "/data"),)))


def test_an_image_that_cannot_start_is_our_fault(sandbox, job):
    broken = job("pass")
    binds = tuple(replace(b, source=Path("/usr/share/no-such-thing")) for b in broken.image.binds if b.target != "/usr")
    kept = tuple(b for b in broken.image.binds if b.target == "/usr")
    with (
        pytest.raises(SandboxFault),
        sandbox.start(replace(broken, image=replace(broken.image, binds=kept + binds))) as r,
    ):
        r.wait(10)


def test_two_containers_at_once_do_not_disturb_each_other(sandbox, job):
    with sandbox.start(job("import time; time.sleep(0.3); print('a')")) as a, sandbox.start(job(DEAF)) as b:
        assert (a.wait(20).stdout.head, b.poll()) == (b"a\n", None)


def test_no_thread_outlives_its_container(sandbox, job):
    name = job("pass").name
    with sandbox.start(Job(name, "guest", ("-I", "-c", DEAF), job("").image, limits=Limits())) as running:
        assert f"watch {name}" in [t.name for t in threading.enumerate()]
        running.kill()
    time.sleep(0.05)
    assert f"watch {name}" not in [t.name for t in threading.enumerate()]


def counting(job, out: Path) -> Job:
    """Ours, as only a judge may write to a host folder."""
    return replace(job(COUNTING, mounts=(Mount(out, "/out", writable=True),)), role="judge")


def writable(folder: Path) -> Path:
    """A folder that the container's uid may write."""
    out = folder / "out"
    out.mkdir()
    out.chmod(0o777)
    return out


def count(out: Path) -> int:
    try:
        return int((out / "count").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return 0


def wait_for(condition, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)
