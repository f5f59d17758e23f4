"""The GPU check without a GPU: how a row is judged, that a GPU which does not come back ends it, and what it says with none."""

from __future__ import annotations

import ast
import json
import os
import secrets
from pathlib import Path

import pytest

from images.api import Image
from images.host import host_image
from runner.gpucheck import __main__ as program
from runner.gpucheck import check as checking
from runner.gpucheck import report
from runner.gpucheck.check import PROGRAMS, Check
from runner.gpucheck.rows import GOOD, ROWS, Facts, judged, only_its_own, refused
from runner.jobs import GUEST_UID
from sandbox import gpueyes, gpurecords
from sandbox.api import Captured, Job, Limits, Mount, Outcome
from sandbox.fake import FakeSandbox
from sandbox.fakegpu import UUID
from sandbox.find import find
from sandbox.nvml import Process, Reading
from sandbox.xid import Xid, XidLog

NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
FACTS = Facts(NODES)
BY_NAME = {row.name: row for row in ROWS}
MIB = 1 << 20
GATE = "gate: before and after"
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", Path(__file__).parents[2] / ".guest" / "bin" / "python"))


def ended(status="exited", code=0, out="", err=""):
    return Outcome(
        status, code, wall_s=1.0, stdout=Captured(len(out), out.encode()), stderr=Captured(len(err), err.encode())
    )


SETTERS = {"init": 0, "handle": 0, "get ComputeMode": 0, "set ComputeMode": 4}
ENDS = {
    "device nodes: its own only": ended(
        out=json.dumps({"nodes": {key: [195, 0] for key in NODES}, "mknod": {"1": "EPERM"}})
    ),
    "NVML setters refused": ended(out=json.dumps(SETTERS)),
    "illegal address": ended(code=1, out="launched\n", err="CUDA error: an illegal memory access was encountered"),
    "endless kernel": ended("timeout", None, out="launched\n"),
    "GPU out of memory": ended(code=1, out="held 9 MiB\n", err="torch.OutOfMemoryError: CUDA out of memory"),
    "context kept by a daemon": ended(out="daemon holds 4096 MiB\n"),
    "forked child holds memory": Outcome("signalled", signal=9, stdout=Captured(30, b"held 9 MiB, child forked\n")),
    "killed while full": ended("timeout", None, out="held 9 MiB\n"),
    "device assert": ended(code=1, out="launched\n", err="device-side assert triggered"),
}
BAD = {
    "nothing happened": ("illegal address", ended(out="launched\nnothing happened\n"), "ok instead of gpu_fault"),
    "never launched": ("endless kernel", ended("timeout", None), "never said 'launched'"),
    "the kernel ended": ("endless kernel", ended(out="launched\nthe kernel ended\n"), "ok instead of gpu_hang"),
    "host memory": ("GPU out of memory", ended("oom", None, out="held 9 MiB"), "oom_host instead of oom_gpu"),
    "daemon failed": ("context kept by a daemon", ended(out="the daemon failed\n"), "never said 'daemon holds'"),
    "setter allowed": ("NVML setters refused", ended(out=json.dumps(SETTERS | {"set ComputeMode": 0})), "code 0"),
    "no setter": ("NVML setters refused", ended(out='{"init": 0, "handle": 0}'), "no setter was tried"),
    "no NVML": ("NVML setters refused", ended(out='{"init": 12, "handle": 1}'), "does not answer inside"),
    "not JSON": ("NVML setters refused", ended(out="[1]"), "does not answer inside"),
}


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_the_expected_end_holds(name: str) -> None:
    status, complaints = judged(BY_NAME[name], ENDS[name], XidLog(), FACTS)
    assert (status, complaints) == (BY_NAME[name].expect, [])


@pytest.mark.parametrize("case", BAD)
def test_every_other_end_is_a_complaint(case: str) -> None:
    name, outcome, complaint = BAD[case]
    assert complaint in "; ".join(judged(BY_NAME[name], outcome, XidLog(), FACTS)[1])


def test_an_application_xid_is_a_fault_and_a_reset_class_one_a_complaint() -> None:
    silent = ended(code=1, out="launched")
    assert judged(BY_NAME["illegal address"], silent, XidLog((Xid(31, "nvml"),)), FACTS)[1] == []
    complaints = judged(BY_NAME["illegal address"], silent, XidLog((Xid(31, "nvml"), Xid(95, "nvml"))), FACTS)[1]
    assert complaints == ["reset-class Xid 95"]


def test_another_gpus_node_or_a_made_one_is_seen() -> None:
    said = json.dumps({"nodes": {key: [195, 0] for key in (*NODES, "/dev/nvidia1")}, "mknod": {"1": "made"}})
    assert len(only_its_own(said, FACTS)) == 2
    assert refused("", FACTS) != []


def test_every_program_is_there_and_is_python_and_every_row_has_its_own() -> None:
    files = {path.name for path in PROGRAMS.glob("*.py")}
    assert files == {row.program for row in (GOOD, *ROWS)}
    for name in files:
        assert ast.get_docstring(ast.parse((PROGRAMS / name).read_text()))


class ScriptedWatch:
    def __init__(self, *_: object) -> None: ...

    def close(self) -> XidLog:
        return XidLog((), (("kmsg", "not readable: closed"),))


@pytest.fixture
def image() -> Image:
    return Image("host", "sha256:" + "0" * 64, "/usr/bin/python3")


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU of no host: `used` bytes and `processes` as a test sets them."""

    class Gpu:
        used = 600 * MIB
        processes: tuple[Process, ...] = ()

        def read(self, uuid: str) -> Reading:
            return Reading(uuid, "scripted", "0", "0000:01:00.0", self.used, 1 << 37, self.processes)

    found = Gpu()
    monkeypatch.setattr(checking.nvml, "read", found.read)
    monkeypatch.setattr(checking.gpu, "nodes", lambda _: NODES)
    monkeypatch.setattr(checking, "HostWatch", ScriptedWatch)
    monkeypatch.setattr(gpueyes, "HostWatch", ScriptedWatch)
    monkeypatch.setattr(gpurecords, "state_folder", lambda: tmp_path / "records")
    monkeypatch.setattr(checking, "CLEAN_S", 0.2)
    return found


def check(gpu, image, programs, **changed) -> Check:
    def guest(job: Job) -> Outcome:
        return programs(job.argv[-1].rpartition("/")[2])

    settings = {"budget_s": 1000.0, "say": lambda _: None} | changed
    return Check(FakeSandbox({"guest": guest}), image, UUID, **settings)


def scripted(name: str) -> Outcome:
    if name == "gpuprobe.py":
        return ended(out=json.dumps({"answer": gpueyes.ANSWER}))
    return ended(out="good\n") if name == "good.py" else ENDS[next(r.name for r in ROWS if r.program == name)]


def test_all_rows_hold_on_a_gpu_that_comes_back(gpu, image) -> None:
    results = check(gpu, image, scripted).run()
    assert [result.name for result in results if not result.ok] == []
    assert [r.name for r in results if r.good_s is None] == ["good", ROWS[0].name, ROWS[1].name, GATE]
    table = report.table(results)
    assert "11 of 11 rows hold" in table
    assert "not readable" in table


def test_after_a_gpu_that_keeps_memory_nothing_more_runs(gpu, image) -> None:
    def leaking(name: str) -> Outcome:
        if name == "illegal_address.py":
            gpu.used += 65 * MIB
        return scripted(name)

    results = {result.name: result for result in check(gpu, image, leaking).run()}
    assert results["illegal address"].status == "quarantined"
    assert "65 MiB above the baseline" in results["illegal address"].complaints[0]
    assert (results["endless kernel"].status, results["endless kernel"].ok) == ("not run", False)


def test_a_process_that_goes_late_is_waited_for_and_timed(gpu, image, monkeypatch) -> None:
    looks = iter(range(1000))
    read = gpu.read

    def late(uuid: str) -> Reading:
        gpu.processes = (Process(7, None, "compute"),) if 2 < next(looks) < 6 else ()
        return read(uuid)

    monkeypatch.setattr(checking.nvml, "read", late)
    results = check(gpu, image, scripted).run()
    assert max(result.clean_s or 0 for result in results) >= 3 * checking.POLL_S


def test_a_wrong_good_candidate_fails_its_row(gpu, image) -> None:
    answers = iter(["good\n", "wrong\n", *["good\n"] * 50])
    results = check(gpu, image, lambda n: ended(out=next(answers)) if n == "good.py" else scripted(n)).run()
    assert [result.name for result in results if not result.ok] == ["illegal address"]


def test_a_gate_that_the_gpu_does_not_pass_fails_its_row(gpu, image, tmp_path) -> None:
    wrong = ended(out='{"answer": 7}')
    results = check(gpu, image, lambda n: wrong if n == "gpuprobe.py" else scripted(n)).run()
    assert [(r.name, r.status) for r in results if not r.ok] == [(GATE, "quarantined")]
    assert (tmp_path / "records" / f"{UUID}.json").exists()


def test_what_the_budget_cuts_off_is_named_and_fails(gpu, image) -> None:
    results = check(gpu, image, scripted, budget_s=0.001).run()
    assert {result.status for result in results[1:-1]} == {"not run"}
    assert "2 of 11 rows hold" in report.table(results)


def test_a_gpu_in_use_is_refused(gpu, image) -> None:
    gpu.processes = (Process(4242, 1, "compute"),)
    with pytest.raises(checking.SandboxFault, match=r"in use \(pid 4242\)"):
        check(gpu, image, scripted).run()


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(program.devices, "gpus", list)
    assert program.main(["--engine", "docker"]) == 69
    assert capsys.readouterr().err == "[gpucheck] no GPU: not run\n"


@pytest.mark.sandbox
@pytest.mark.conformance
@pytest.mark.parametrize("engine", ["docker", "bwrap"])
def test_a_container_without_a_gpu_has_no_node_and_can_make_none(engine: str) -> None:
    job = Job(
        name=f"assay-gpucheck-{secrets.token_hex(4)}",
        role="guest",
        argv=("-I", "/programs/nodes.py"),
        image=host_image(PYTHON),
        mounts=(Mount(PROGRAMS, "/programs"),),
        limits=Limits(wall_s=30),
        uid=GUEST_UID,
    )
    outcome = find(engine).run(job)
    assert outcome.status == "exited"
    assert only_its_own(outcome.stdout.text(), Facts(())) == []
    assert len(json.loads(outcome.stdout.text())["mknod"]) == 8
