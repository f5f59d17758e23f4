"""The suite's own judgement: what it must call NO, what not run, and the code that ends in. No container is started."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from images.api import Image
from runner import devices, exits
from runner.check import attempt, command, judging, on_gpu, report, watch
from runner.check.attempt import KNOWN, Bench, Result
from runner.check.judging import Witness
from runner.check.platform import FAULTS, Fault
from runner.check.proxy import Resetting
from runner.check.table import LIMITS, ROWS, Row
from runner.gpucheck import check as gpucheck
from runner.gpucheck import rows as gpurows
from sandbox.api import Captured, Job, Limits, Outcome, SandboxFault
from sandbox.fake import FakeSandbox
from sandbox.status import RunStatus

IMAGE = Image(name="none", digest="sha256:0", python="/usr/bin/python3")
BY_NAME = {row.name: row for row in ROWS}


def printed(text: bytes, status: str = "exited", code: int | None = 0) -> Outcome:
    return Outcome(status, code, wall_s=0.5, stdout=Captured(len(text), text))  # type: ignore[arg-type]


def witness(said: object, **facts: object) -> Witness:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    base = Witness(replace(printed(text), pids_refused=0), Limits(**LIMITS), "canary", "mark", neighbour="mark-beside")
    return replace(base, **facts)  # type: ignore[arg-type]


def bench(program: Callable[[Job], Outcome]) -> Bench:
    """A fake sandbox in which the honest program works and the hostile one does what is asked."""

    def guest(job: Job) -> Outcome:
        return printed(KNOWN.encode()) if job.name.endswith("-good") else program(job)

    return Bench(FakeSandbox({"guest": guest, "build": guest}), IMAGE)


def test_every_program_belongs_to_a_row_and_every_row_that_runs_has_one() -> None:
    programs = {path.stem for path in attempt.PROGRAMS.glob("*.py")}
    assert programs == {row.name.replace("-", "_") for row in ROWS if not row.needs} | {"good"}
    assert len(BY_NAME) == len(ROWS)


def test_the_known_answer_is_what_the_honest_program_prints() -> None:
    said = subprocess.run([sys.executable, attempt.PROGRAMS / "good.py"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == KNOWN


def test_what_is_as_expected_is_ok() -> None:
    result = bench(lambda job: Outcome("pids-limit", 1, pids_refused=50)).attempt(BY_NAME["fork-bomb"])
    assert (result.verdict, result.observed, result.problems) == ("ok", "pids_limit", ())


@pytest.mark.parametrize("row", [row for row in ROWS if not row.needs], ids=lambda row: row.name)
def test_a_sandbox_that_lets_a_program_run_on_is_never_ok(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.check.stage.LINK_S", 0.1)
    result = bench(lambda job: Outcome("signalled", None, 11)).attempt(row)
    assert result.verdict == "NO"
    assert result.problems


def test_our_own_fault_is_not_ok() -> None:
    def gone(job: Job) -> Outcome:
        raise SandboxFault("engine gone")

    result = bench(gone).attempt(BY_NAME["sleeper"])
    assert (result.verdict, result.observed) == ("NO", "infra_error")


def test_a_program_that_ran_beyond_its_grace_is_not_ok() -> None:
    result = bench(lambda job: Outcome("timeout", wall_s=5.5)).attempt(BY_NAME["deaf-loop"])
    assert result.problems == ("it ran for 5.5 s, its limit is 2 s and 3 s of grace",)


def test_an_honest_program_that_fails_afterwards_is_not_ok() -> None:
    lab = Bench(FakeSandbox({"guest": lambda job: Outcome("pids-limit", 1)}), IMAGE)
    result = lab.attempt(BY_NAME["fork-bomb"])
    assert result.verdict == "NO"
    assert "an honest program failed after it" in result.problems[0]


def test_a_changed_bundle_a_visitor_and_a_leaked_secret_are_seen() -> None:
    def spoil(job: Job) -> Outcome:
        (next(m.source for m in job.mounts if m.target == "/bundle") / "kernel.py").write_text("spoilt")
        return printed(json.dumps(dict.fromkeys(map(str, range(17)), "EROFS")).encode())

    assert bench(spoil).attempt(BY_NAME["bundle-write"]).problems == ("its bundle has changed",)

    def tell(job: Job) -> Outcome:
        return printed(b"/bundle/kernel.py def kernel(): ... " + Path(job.argv[3]).read_bytes())

    assert bench(tell).attempt(BY_NAME["snoop"]).problems == ("a secret of the launcher is in its output",)

    def visit(job: Job) -> Outcome:
        socket.create_connection(("127.0.0.1", int(job.argv[3])), 5).close()
        return printed(json.dumps(dict.fromkeys(map(str, range(16)), "EPERM")).encode())

    assert any("visitors from inside" in p for p in bench(visit).attempt(BY_NAME["network"]).problems)


def test_an_attempt_that_worked_is_a_violation_and_one_that_failed_otherwise_is_no_refusal() -> None:
    judge = judging.refused(frozenset({"EPERM"}), at_least=2)
    worked = judge(witness({"a": "EPERM", "b": "done"}))
    assert (worked.problem, worked.seen.policy_broken) == ("it achieved: b", True)
    assert judge(witness({"a": "EPERM", "b": "EINVAL"})).problem == "not refused but failed: b: EINVAL"
    assert judge(witness({"a": "EPERM"})).problem.startswith("it did not try all it should")
    assert judge(witness({"a": "EPERM", "b": "EPERM"})).problem == ""
    assert judge(witness(b"Traceback")).problem


@pytest.mark.parametrize(
    ("judge", "bad"),
    [
        (judging.forks_refused, witness(b"")),
        (judging.network, witness({"tcp host": "reached"})),
        (judging.disk, witness({"/": [1, "ENOSPC"], "/tmp": [32, "ENOSPC"], "/dev/shm": [16, "ENOSPC"]})),
        (judging.disk, witness({"/tmp": [33, "ENOSPC"], "/dev/shm": [16, "ENOSPC"]})),
        (judging.alone, witness({"processes": ["x mark-beside"], "files": [], "devices": []})),
        (judging.open_files, witness(b"EMFILE 5000")),
        (judging.no_core, witness(b"1073741824")),
        (judging.raw_kept, witness(b"title")),
        (judging.never_blocked, witness(b"slept", heard=("full",), link_s=9.0)),
        (judging.bounded_output, witness(b"", grown_bytes=65 << 20)),
        (judging.protocol(1), witness(b"", heard=("understood {'a': 1}", "honest"))),
        (judging.protocol(2), witness(b"", heard=("refused: x", "honest"))),
        (judging.protocol(1), witness(b"", heard=("refused: x", "refused: y"))),
        (judging.canary_unseen, witness(b"/etc/shadow root:")),
        (judging.host_clock, witness({"clock_settime": "done", "b": "EPERM", "c": "EPERM"})),
        (judging.partial_output, witness(b"")),
    ],
)
def test_each_question_has_an_answer_that_is_wrong(judge: judging.Judge, bad: Witness) -> None:
    assert judge(bad).problem


def test_what_is_left_on_the_host_is_found(tmp_path: Path) -> None:
    mark = f"assay-check-left-{tmp_path.name}"
    planted = Path("/tmp") / f"{mark}-0"
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", mark])
    try:
        planted.touch()
        found = watch.leftovers(mark)
    finally:
        planted.unlink()
        process.kill()
        process.wait()
    assert sorted(found) == [f"file: {planted}", f"process: {process.pid}"]
    assert watch.leftovers(mark) == []


def test_what_the_host_lost_is_found() -> None:
    now = watch.figures()
    more = replace(now, memory=now.memory + (3 << 40), inodes=now.inodes + 10**12, pids=now.pids - 10**6)
    assert [text.split(":")[0] for text in watch.taken(more, settle_s=0.0)] == ["memory", "inodes", "pids"]


def result(verdict: str) -> Result:
    return Result("fork-bomb", "1", "forks", ("pids_limit",), verdict, "ok", "exit 0", ("pids",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdicts", "strict", "code"),
    [
        (["ok"], True, exits.WINNER),
        (["ok", "not run"], False, exits.WINNER),
        (["ok", "not run"], True, exits.DISAGREES),
        (["ok", "NO"], False, exits.DISAGREES),
    ],
)
def test_the_code_says_whether_all_was_as_expected(verdicts: list[str], strict: bool, code: int) -> None:
    assert command.code([result(verdict) for verdict in verdicts], strict=strict) == code


def test_an_unknown_name_is_one_line_of_usage() -> None:
    with pytest.raises(exits.UsageError, match="no program nope"):
        command.chosen(["nope"])
    assert [row.name for row in command.chosen(["network", "sleeper"])] == ["sleeper", "network"]


def test_the_report_names_what_is_wrong_and_what_was_not_run() -> None:
    rows = [result("NO"), result("not run")]
    assert [report.line(row).split()[0] for row in rows] == ["NO", "not"]
    assert "pids" in report.line(rows[0])
    engine = {"engine": "fake", "version": "1"}
    assert report.summary(rows, engine, 1.0) == "0 ok, 1 NO, 1 not run; fake 1, 1 s"
    assert json.loads(json.dumps(report.document(rows, engine, 1.0)))["counts"] == {"ok": 0, "NO": 1, "not run": 1}


def test_a_row_that_needs_a_gpu_is_not_run_and_says_so() -> None:
    found = bench(lambda job: Outcome("exited", 0)).attempt(BY_NAME["gpu-fault"])
    assert (found.verdict, found.expected) == ("not run", (RunStatus.GPU_FAULT,))
    assert "needs an NVIDIA GPU" in found.problems[0]


@pytest.mark.parametrize("name", ["start-fails", "cgroup-hybrid"])
def test_a_sandbox_that_hides_our_own_faults_or_counts_nothing_is_not_ok(name: str) -> None:
    fault = replace(next(fault for fault in FAULTS if fault.name == name), engines=("fake",), cgroup="")
    found = bench(lambda job: Outcome("exited", 0)).provoke(fault)
    assert found.verdict == "NO"
    assert found.observed in ("ok", "not counted")


def test_a_fault_that_could_not_be_provoked_is_not_ok() -> None:
    def broken(*_: object) -> tuple[str, str]:
        raise OSError("no unshare here")

    found = bench(lambda job: Outcome("exited", 0)).provoke(
        Fault("x", "P0", "breaks", frozenset({"infra_error"}), broken, engines=("fake",))
    )
    assert (found.verdict, found.problems) == ("NO", ("not provoked, not infra_error: no unshare here",))


def test_what_a_fault_leaves_behind_is_seen() -> None:
    process: list[subprocess.Popen[bytes]] = []

    def leaves(lab: Bench, mark: str, folder: Path) -> tuple[str, str]:
        process.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", mark]))
        return "cleared", ""

    try:
        found = bench(lambda job: Outcome("exited", 0)).provoke(
            Fault("x", "P0", "leaves", frozenset({"cleared"}), leaves, engines=("fake",))
        )
    finally:
        process[0].kill()
        process[0].wait()
    assert found.problems == (f"left: process: {process[0].pid}",)


def test_every_fault_is_provoked_or_says_why_not() -> None:
    assert {fault.case for fault in FAULTS} == {f"P{number}" for number in range(1, 13)}
    assert [fault.name for fault in FAULTS if (fault.action is None) != bool(fault.needs)] == []


def test_the_proxy_passes_everything_on_but_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = socket.socket(socket.AF_UNIX)
    daemon.bind(str(tmp_path / "real"))
    daemon.listen()

    def answer() -> None:
        for _ in range(2):
            with daemon.accept()[0] as link:
                while asked := link.recv(1000):
                    link.sendall(b"answer to " + asked)

    serving = threading.Thread(target=answer)
    serving.start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/real")
    answers = []
    with Resetting(tmp_path / "p", b"/wait") as proxy:
        for asked in (b"GET /info HTTP/1.1\r\n/wait", b"POST /c/wait HTTP/1.1\r\n"):
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(5)
                link.connect(str(tmp_path / "p"))
                link.sendall(asked)
                answers.append(link.recv(1000))
    serving.join(5)
    daemon.close()
    assert answers == [b"answer to GET /info HTTP/1.1\r\n/wait", b""]
    assert proxy.resets == 1


def test_the_gpus_rows_are_lines_of_the_same_report_and_end_in_the_same_code() -> None:
    good = gpucheck.Result("illegal address", "gpu_fault", "gpu_fault", wall_s=4.0, clean_s=0.41, good_s=5.0)
    bad = gpucheck.Result("endless kernel", "gpu_hang", "ok", complaints=["ok instead of gpu_hang"])
    cut = gpucheck.Result("device assert", "gpu_fault")
    lines = [on_gpu.line(one) for one in (good, bad, cut)]
    assert [line.verdict for line in lines] == ["ok", "NO", "NO"]
    assert "clean 0.41 s after its end" in report.line(lines[0])
    assert command.code(lines[:1], strict=True) == exits.WINNER
    assert command.code(lines[2:], strict=False) == exits.DISAGREES


def test_every_row_of_the_gpus_check_has_its_number_and_what_it_answers_is_not_called_not_run() -> None:
    named = {row.name for row in gpurows.ROWS} | {gpurows.GOOD.name, "gate: before and after"}
    assert named == set(on_gpu.CASES)
    assert {row.name for row in ROWS if row.name in command.ANSWERED} == {
        "gpu-endless",
        "gpu-fault",
        "gpu-memory",
        "gpu-reach",
    }


def test_without_a_gpu_asking_for_one_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", list)
    with pytest.raises(exits.Unavailable, match="no GPU"):
        command.check("auto", (), None, strict=False, as_json=False, gpu=True)
