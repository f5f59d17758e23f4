"""The command line: the result on stdout, the log on stderr, the answer in the exit code; and bad input in one line."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventstore import errors
from eventstore.log import Log
from images.api import ImageFault
from replay.fold import FoldError
from runner import cli, cli_run, exits, machine, session
from runner.bundle import write
from runner.fake import FakeLab, source
from sandbox.api import SandboxFault, SandboxUnavailable
from tests.conftest import guest_python
from tests.runner import stories


@dataclass(frozen=True)
class Said:
    """What one call of the program left."""

    code: int
    out: str
    err: str


Assay = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def assay(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Assay:
    """Calls the program in this process, in a home of its own, on the fake lab."""
    monkeypatch.setenv("ASSAY_HOME", str(home))
    monkeypatch.setattr(cli_run, "machine", lambda wanted, home: stories.fake_machine(FakeLab()))
    monkeypatch.setattr(session, "same", lambda *args: stories.fake_machine(FakeLab()))

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["assay", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return Said(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    folder = tmp_path / "my-bundle"
    write(stories.bundle(), folder)
    folder.chmod(0o755)
    return folder


def mock(tmp_path: Path, *sources: bytes) -> tuple[object, ...]:
    folder = stories.write_sources(tmp_path / "mock", sources)
    return "--provider", "mock", "--mock-dir", folder, "--device", "cpu"


def events(home: Path) -> int:
    """How many events the home holds; 0 where there is no log."""
    try:
        with Log.open(home, read_only=True) as log:
            return log.head().position
    except errors.StoreMissing:
        return 0


def test_a_run_with_a_winner_prints_one_json_result_and_the_live_log_and_ends_with_0(
    assay: Assay, contract: Path, tmp_path: Path, home: Path
) -> None:
    said = assay("run", contract, *mock(tmp_path, source(50.0)))
    result = json.loads(said.out)
    assert (said.code, result["success"], result["winner_experiment_id"]) == (0, True, "c001")
    assert said.out == json.dumps(result, indent=2, sort_keys=True) + "\n"
    assert all(line.startswith("[assay] ") for line in said.err.splitlines())
    assert f"[assay] episode name={result['episode']}" in said.err
    place = Path(result["artifacts_dir"])
    assert place.is_absolute()
    assert result["experiments"][0]["meaning"] == "right on every call, and faster beyond doubt"
    assert (place / "best_kernel.py").read_bytes() == source(50.0)
    assert (place / "experiments" / "c001" / "kernel.py").read_bytes() == source(50.0)
    assert json.loads((place / "result.json").read_text()) == {**result, "best_kernel": source(50.0).decode()}


def test_a_run_without_a_winner_ends_with_2_and_keeps_the_baseline_as_the_best(
    assay: Assay, contract: Path, tmp_path: Path
) -> None:
    said = assay("run", contract, *mock(tmp_path, source(200.0)))
    result = json.loads(said.out)
    assert (said.code, result["outcome"], result["winner_experiment_id"]) == (2, "no-winner", "baseline")
    assert (Path(result["artifacts_dir"]) / "best_kernel.py").read_bytes() == stories.bundle().kernel


def test_the_mock_provider_without_a_folder_echoes_so_everything_is_a_duplicate(assay: Assay, contract: Path) -> None:
    said = assay("run", contract, "--provider", "mock", "--device", "cpu", "--max-candidates", 3)
    assert said.code == 2
    assert [one["reason"] for one in json.loads(said.out)["experiments"]] == ["duplicate"] * 3


def test_optimize_searches_the_operator_s_grid(assay: Assay) -> None:
    said = assay("optimize", "rmsnorm", "--device", "cpu", "--dtype", "fp32", "--max-candidates", 2, "--seed", 5)
    result = json.loads(said.out)
    assert (said.code, result["operator"], result["dtype"], len(result["experiments"])) == (2, "rmsnorm", "fp32", 2)
    assert [one["knobs"]["template"] for one in result["experiments"]] == ["one_row", "row_block"]


def test_an_operator_without_anything_to_search_is_refused_before_anything_runs(
    assay: Assay, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "space", lambda *args: [])
    said = assay("optimize", "rmsnorm", "--device", "cpu")
    assert (said.code, said.out, said.err.count("\n")) == (64, "", 1)
    assert said.err.startswith(
        "assay: rmsnorm: nothing to search on cpu beside the baseline; its contract.yaml gives no"
    )
    assert not home.exists()


def test_an_interruption_says_how_to_go_on_from_anywhere(
    assay: Assay, contract: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("runner.pipeline.run", interrupted)
    said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    (name,) = (path.name for path in (home / "runs").iterdir())
    assert said == Said(130, "", f"assay: interrupted; go on with: assay resume {name} --home {home}\n")


def test_our_own_failure_ends_with_70_and_no_verdict(
    assay: Assay, contract: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_run, "machine", lambda wanted, home: stories.fake_machine(FakeLab(faults=99)))
    said = assay("run", contract, *mock(tmp_path, source(50.0)))
    assert (said.code, json.loads(said.out)["outcome"], json.loads(said.out)["faults"]) == (70, "fault", 3)


def test_a_baseline_that_is_wrong_by_itself_ends_with_65(assay: Assay, contract: Path, tmp_path: Path) -> None:
    (contract / "kernel.py").unlink()
    (contract / "kernel.py").write_bytes(source(100.0, "wrong"))
    said = assay("run", contract, *mock(tmp_path, source(50.0)))
    assert (said.code, json.loads(said.out)["outcome"]) == (65, "refused")


def test_everything_reads_back_what_a_run_left(assay: Assay, contract: Path, tmp_path: Path) -> None:
    result = json.loads(assay("run", contract, *mock(tmp_path, source(50.0))).out)
    name = result["episode"]
    assert json.loads(assay("show", name, "--json").out)["finished"]["winner"] == "c001"
    assert f"episode    {name} (done)" in assay("show", name).out
    assert [row["candidate"] for row in json.loads(assay("leaderboard", "--json").out)] == ["c001"]
    assert "winner" in assay("leaderboard").out
    assert assay("replay", name).out.endswith("result     agrees\n")
    assert json.loads(assay("replay", name, "--json").out)["agree"] is True
    assert assay("log", "verify").out.endswith("all intact\n")
    assert json.loads(assay("log", "verify", "--json").out)["ok"] is True
    shown = [json.loads(line) for line in assay("log", "show", "--json").out.splitlines()]
    assert [event["version"] for event in shown] == list(range(1, len(shown) + 1))
    assert [json.loads(line)["position"] for line in assay("log", "tail", "-n", 2, "--json").out.splitlines()] == [
        len(shown) - 1,
        len(shown),
    ]
    assert len(assay("log", "show", "--stream", name, "--after", 3, "--limit", 2).out.splitlines()) == 2
    assert assay("resume", name).code == 0
    path = Path(json.loads(assay("views", "--json").out)["path"])
    with contextlib.closing(sqlite3.connect(path)) as tables:
        assert tables.execute("select candidate, verdict from candidates").fetchall() == [("c001", "promote")]


def test_the_tail_of_the_log_is_what_the_run_printed(assay: Assay, contract: Path, tmp_path: Path) -> None:
    said = assay("run", contract, *mock(tmp_path, source(50.0)))
    assert assay("log", "tail", "-n", 999).out == said.err


def test_a_changed_decision_is_seen_by_a_replay_and_ends_with_76(
    assay: Assay, contract: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = json.loads(assay("run", contract, *mock(tmp_path, source(50.0))).out)["episode"]
    monkeypatch.setattr("ops.decide.judge.rounded", lambda value: round(value, 1))
    said = assay("replay", name)
    assert said.code == 76
    assert "candidate.judged" in said.out


def judged(home: Path) -> str:
    """Name of the only episode."""
    with Log.open(home, read_only=True) as log:
        (name,) = log.store.streams()
    return str(name)


@pytest.mark.parametrize(
    ("candidate", "code", "verdict", "line"),
    [
        (source(50.0), 0, "PASSED: right on every call, and faster beyond doubt", "x over the baseline (at least "),
        (source(50.0, "wrong"), 2, "NOT PASSED: wrong", "wrong: case main, 3 calls, an error of 2 times its tolerance"),
        (source(200.0), 2, "NOT PASSED: slower", " us, the baseline "),
        (source(50.0, "wrong-hidden"), 2, "NOT PASSED: wrong", "hidden inputs "),
        (source(100.0), 2, "NOT PASSED: duplicate", "to do: propose other code"),
    ],
    ids=["faster", "wrong", "slower", "wrong-hidden", "the baseline itself"],
)
def test_one_file_is_judged_in_words_with_its_numbers(
    candidate: bytes, code: int, verdict: str, line: str, assay: Assay, contract: Path, tmp_path: Path, home: Path
) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_bytes(candidate)
    said = assay("judge", kernel, "--bundle", contract, "--device", "cpu")
    assert said.code == code, said.err
    assert said.out.startswith(f"verdict    {verdict}\n"), said.out
    assert line in said.out
    name = judged(home)
    assert assay("show", name).out == said.out[said.out.index("episode    ") :]
    assert assay("resume", name).code == code
    assert json.loads(assay("log", "show", "--json", "--limit", 1).out)["fact"]["settings"]["file"] == str(kernel)
    assert assay("replay", name).code == 0


def test_the_file_is_judged_as_it_was_when_the_run_began(
    assay: Assay, contract: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_bytes(source(50.0))
    begin = session.begin

    def swapped(*args: object) -> object:
        kernel.write_bytes(source(50.0, "wrong"))
        return begin(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "begin", swapped)
    assert assay("judge", kernel, "--bundle", contract, "--device", "cpu").code == 0
    kernel.unlink()
    assert assay("resume", judged(home)).code == 0


def test_a_judged_file_that_is_gone_when_the_run_goes_on_gets_no_verdict(
    assay: Assay, contract: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_bytes(source(50.0))

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr("runner.steps.propose", interrupted)
        assert assay("judge", kernel, "--bundle", contract, "--device", "cpu").code == 130
    kernel.unlink()
    resumed = assay("resume", judged(home))
    assert resumed.code == 2
    assert resumed.out.startswith("verdict    ")
    assert f"proposal   1 failed: provider-error, {kernel}: No such file" in assay("show", judged(home)).out.replace(
        '"', ""
    )


def test_a_judged_file_can_be_told_as_json_and_by_an_operator_s_contract(assay: Assay, tmp_path: Path) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_bytes(source(50.0))
    said = assay("judge", kernel, "--op", "rmsnorm", "--dtype", "fp32", "--device", "cpu", "--json")
    result = json.loads(said.out)
    assert (said.code, result["operator"], result["dtype"], len(result["experiments"])) == (0, "rmsnorm", "fp32", 1)


def test_a_bundle_whose_baseline_is_wrong_gives_the_judged_file_no_verdict(
    assay: Assay, contract: Path, tmp_path: Path
) -> None:
    (contract / "kernel.py").unlink()
    (contract / "kernel.py").write_bytes(source(100.0, "wrong"))
    kernel = tmp_path / "mine.py"
    kernel.write_bytes(source(50.0))
    said = assay("judge", kernel, "--bundle", contract, "--device", "cpu")
    assert said.code == 65
    assert said.out.startswith(
        "verdict    NONE: the kernel was not looked at, for the baseline cannot be compared with: wrong\n"
    )
    assert "to do: mend the bundle: kernel.py and `reference` of task.py disagree" in said.out


def test_episodes_lists_what_ran_and_a_board_is_found_by_the_bundle_s_folder(
    assay: Assay, contract: Path, tmp_path: Path
) -> None:
    name = json.loads(assay("run", contract, *mock(tmp_path, source(50.0))).out)["episode"]
    row = json.loads(assay("episodes", "--json").out)[0]
    assert (row["episode"], row["what"], row["candidates"]) == (name, "my-bundle", 1)
    assert row["outcome"].startswith("winner c001 ")
    assert name in assay("episodes").out
    assert "my-bundle sha256:" in assay("leaderboard", "my-bundle").out
    assert "[main,odd]" in assay("leaderboard").out
    said = assay("leaderboard", "nope")
    assert (said.code, said.out) == (66, "")
    assert said.err == "assay: no episode of an operator or bundle 'nope' in this home; see `assay episodes`\n"


def test_the_tail_says_whose_lines_these_are(assay: Assay, contract: Path, tmp_path: Path) -> None:
    first = json.loads(assay("run", contract, *mock(tmp_path, source(200.0))).out)["episode"]
    second = json.loads(assay("run", contract, "--provider", "mock", "--device", "cpu", "--max-candidates", 1).out)
    lines = assay("log", "tail", "-n", 9).out.splitlines()
    assert lines[0] == f"[assay] episode name={second['episode']}"
    lines = assay("log", "tail", "-n", 12).out.splitlines()
    assert [line for line in lines if " episode name=" in line] == [
        f"[assay] episode name={first}",
        f"[assay] episode name={second['episode']}",
    ]
    said = assay("log", "tail", "--stream", "nope")
    assert (said.code, said.out, said.err) == (66, "", "assay: no episode nope in this home; see `assay episodes`\n")


def test_the_version_is_the_checkout_s(assay: Assay) -> None:
    assert assay("--version") == Said(0, "assay 0.1.0\n", "")


def test_every_command_s_help_says_in_one_whole_line_what_it_is_for(assay: Assay) -> None:
    for group in ([], ["log"], ["image"]):
        said = assay(*group, "--help")
        listed = said.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        assert [line for line in listed if line.endswith("...") and group != ["image"]] == []
        names = [line.split()[0] for line in listed]
        assert [name for name in names if assay(*group, name, "--help").code != 0] == []


BAD = {
    "unknown command": (["frobnicate"], 64, "No such command 'frobnicate'."),
    "unknown operator": (["optimize", "nope", "--device", "cpu"], 64, "unknown operator 'nope'; known: "),
    "unknown shape symbol": (
        ["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=1,T=2,D=3,Q=4"],
        64,
        "rmsnorm: unknown shape symbol Q",
    ),
    "missing shape symbol": (
        ["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=1"],
        64,
        "rmsnorm: missing shape symbol D",
    ),
    "no size": (["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=0,T=1,D=1"], 64, "rmsnorm: B=0: a size"),
    "malformed shape": (["optimize", "rmsnorm", "--device", "cpu", "--shape", "B"], 64, "--shape: 'B' is not like"),
    "doubled symbol": (["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=1,B=2"], 64, "--shape: B is given"),
    "unknown dtype": (["optimize", "rmsnorm", "--device", "cpu", "--dtype", "fp8"], 64, "rmsnorm: unknown dtype 'fp8'"),
    "unknown device": (["optimize", "rmsnorm", "--device", "tpu"], 64, "unknown device 'tpu'; there is cuda, cpu"),
    "unknown engine": (["optimize", "rmsnorm", "--engine", "none"], 64, "unknown engine 'none'"),
    "unknown image": (["optimize", "rmsnorm", "--image", "x"], 64, "unknown image 'x'"),
    "unknown strategy": (["optimize", "rmsnorm", "--strategy", "x"], 64, "unknown strategy 'x'"),
    "later strategy": (["optimize", "rmsnorm", "--strategy", "grpo"], 64, "strategy grpo comes later"),
    "no candidates": (["optimize", "rmsnorm", "--device", "cpu", "--max-candidates", "0"], 64, "max-candidates: "),
    "too many": (["optimize", "rmsnorm", "--device", "cpu", "--max-candidates", "1025"], 64, "max-candidates: "),
    "no number": (["optimize", "rmsnorm", "--max-candidates", "x"], 64, "Invalid value for '--max-candidates'"),
    "unknown option": (["optimize", "rmsnorm", "--fast"], 64, "No such option: --fast"),
    "missing argument": (["optimize"], 64, "Missing argument 'OP'."),
    "no bundle": (["run", "no/such", "--provider", "mock"], 65, "no/such: no such directory; docs/bundles.md"),
    "no provider": (["run", "BUNDLE", "--provider", "codex"], 64, "unknown provider 'codex'"),
    "no command": (["run", "BUNDLE", "--provider", "command"], 64, "--provider command needs --command"),
    "no program": (["run", "BUNDLE", "--provider", "command", "--command", "no-such-x"], 64, "--command: no such"),
    "no mock folder": (["run", "BUNDLE", "--provider", "mock", "--mock-dir", "no/such"], 64, "--mock-dir"),
    "empty mock folder": (
        ["run", "BUNDLE", "--provider", "mock", "--mock-dir", "EMPTY"],
        64,
        "--mock-dir EMPTY: no *.py",
    ),
    "command for a mock": (
        ["run", "BUNDLE", "--provider", "mock", "--command", "x"],
        64,
        "--command goes with --provider command, not with mock",
    ),
    "folder for a command": (
        ["run", "BUNDLE", "--provider", "command", "--command", "cat", "--mock-dir", "EMPTY"],
        64,
        "--mock-dir goes with --provider mock, not with command",
    ),
    "pairs that contradict": (
        ["run", "BUNDLE", "--provider", "mock", "--device", "cpu", "--max-pairs", "2"],
        64,
        "min-pairs 3 is more than max-pairs 2",
    ),
    "a shape beyond any memory": (
        ["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=999999,T=999999,D=8"],
        64,
        "--shape: the reference needs at least 119,209 GiB, and the judge has 8 GiB on a CPU",
    ),
    "a size beyond any number": (
        ["optimize", "rmsnorm", "--device", "cpu", "--shape", "B=9999999999999,T=1,D=1"],
        64,
        "--shape: B: larger than any memory",
    ),
    "no kernel to judge": (["judge", "no/such.py", "--op", "rmsnorm"], 64, "no/such.py: no such file"),
    "a folder to judge": (["judge", "BUNDLE", "--op", "rmsnorm"], 64, "BUNDLE: a kernel is one file"),
    "nothing to judge by": (["judge", "KERNEL"], 64, "judge needs one contract to judge by: --bundle BUNDLE or --op"),
    "two contracts": (["judge", "KERNEL", "--op", "rmsnorm", "--bundle", "BUNDLE"], 64, "judge needs one contract"),
    "a shape for a bundle": (
        ["judge", "KERNEL", "--bundle", "BUNDLE", "--dtype", "fp16"],
        64,
        "--shape and --dtype go with --op",
    ),
    "no home to list": (["episodes"], 66, "no log at "),
    "no home to resume in": (["resume", "story-1"], 66, "no log at "),
    "no home to show": (["show", "story-1"], 66, "no log at "),
    "no home to replay": (["replay", "story-1"], 66, "no log at "),
    "no home to verify": (["log", "verify"], 66, "no log at "),
    "no home to tail": (["log", "tail"], 66, "no log at "),
    "no home for a board": (["leaderboard"], 66, "no log at "),
    "no episode's name": (["resume", "../x"], 64, "not an episode's name: '../x'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_an_exit_code_and_no_partial_state(
    what: str, assay: Assay, contract: Path, home: Path, tmp_path: Path
) -> None:
    arguments, code, line = BAD[what]
    places = {"BUNDLE": contract, "KERNEL": contract / "kernel.py", "EMPTY": tmp_path / "empty"}
    places["EMPTY"].mkdir()
    said = assay(*(str(places.get(word, word)) for word in arguments))
    for word, place in places.items():
        line = line.replace(f"{word}:", f"{place}:")
    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1), said.err
    assert said.err.startswith(f"assay: {line}"), said.err
    assert ("--home or ASSAY_HOME names another" in said.err) == (line == "no log at ")
    assert not home.exists()


BROKEN = {
    "missing file": lambda folder: (folder / "task.py").unlink(),
    "bad JSON": lambda folder: (folder / "cases.json").write_text("[NaN]"),
    "duplicate case": lambda folder: (folder / "cases.json").write_text('[{"case_id": "a"}, {"case_id": "a"}]'),
    "unknown key": lambda folder: (folder / "cases.json").write_text('[{"case_id": "a", "wieght": 1}]'),
    "infinite weight": lambda folder: (folder / "cases.json").write_text('[{"case_id": "a", "weight": 1e999}]'),
    "no entry point": lambda folder: (folder / "kernel.py").write_text("def other(x):\n    return x\n"),
    "harness": lambda folder: (folder / "harness.py").write_text(""),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_malformed_bundle_is_one_line_and_65(what: str, assay: Assay, contract: Path, home: Path) -> None:
    for file in contract.iterdir():
        file.chmod(0o644)
    BROKEN[what](contract)
    said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    assert (said.code, said.out, said.err.count("\n")) == (65, "", 1), said.err
    assert said.err.startswith(f"assay: {contract}")
    assert said.err.endswith("; docs/bundles.md says what a bundle is\n")
    assert not home.exists()


def test_without_a_gpu_one_line_names_the_cpu_device(assay: Assay, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_run, "machine", machine.machine)
    monkeypatch.setattr("runner.devices.gpus", list)
    said = assay("optimize", "rmsnorm")
    line = "assay: no NVIDIA GPU here: give `--device cpu` to run in Triton's interpreter\n"
    assert said == Said(69, "", line)
    assert not home.exists()


def test_without_a_sandbox_one_line_says_what_to_install(
    assay: Assay, contract: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(engine: str) -> None:
        raise SandboxUnavailable("no sandbox on this host: install bubblewrap")

    monkeypatch.setattr(cli_run, "machine", machine.machine)
    monkeypatch.setattr(machine, "find", none)
    said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    assert said == Said(69, "", "assay: no sandbox on this host: install bubblewrap\n")
    assert not home.exists()


def test_a_locked_log_is_one_line_and_75_and_no_episode(
    assay: Assay, contract: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assay("run", contract, *mock(tmp_path, source(200.0))).code == 2
    before = events(home)
    monkeypatch.setattr(Log.open.__func__, "__kwdefaults__", {"read_only": False, "create": True, "wait_s": 0.2})
    with Log.open(home) as other, other.store._lock.held():  # type: ignore[union-attr]
        said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    assert (said.code, said.out, said.err.count("\n")) == (75, "", 1)
    assert "is held by another process" in said.err
    assert (events(home), len(list((home / "runs").iterdir()))) == (before, 1)


def test_a_corrupt_log_is_one_line_and_74_whoever_looks(
    assay: Assay, contract: Path, tmp_path: Path, home: Path
) -> None:
    name = json.loads(assay("run", contract, *mock(tmp_path, source(200.0))).out)["episode"]
    raw = (home / "log.sqlite").read_bytes()
    (home / "log.sqlite").write_bytes(raw.replace(b'"outcome":"no-winner"', b'"outcome":"yes-winne"'))
    for arguments in (["run", contract, "--provider", "mock", "--device", "cpu"], ["show", name], ["resume", name]):
        said = assay(*arguments)
        assert (said.code, said.out, said.err.count("\n")) == (74, "", 1), arguments
        assert "corrupt log at position" in said.err
    assert assay("log", "verify").code == 74


def test_a_full_disk_is_one_line_and_73_and_no_episode(
    assay: Assay, contract: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, body: bytes) -> str:
        raise errors.StoreFull("no space left on the device of the log")

    monkeypatch.setattr("eventstore.blobs.Blobs.put", full)
    said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    assert said == Said(73, "", "assay: no space left on the device of the log\n")
    assert (events(home), list((home / "runs").iterdir())) == (0, [])


@pytest.mark.parametrize("kib", [16, 64, 160])
def test_a_disk_that_is_really_full_is_one_line_and_73_and_with_space_all_goes_on(
    kib: int, assay: Assay, contract: Path, tmp_path: Path, home: Path
) -> None:
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", home], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        said = assay("run", contract, *mock(tmp_path, *(source(us) for us in range(200, 240))), "--calls", 40)
        assert (said.code, said.out) == (73, ""), said.err
        assert said.err.splitlines()[-1].startswith("assay: ")
        subprocess.run(["mount", "-o", "remount,size=20m", home], check=True)
        assert assay("run", contract, "--provider", "mock", "--device", "cpu", "--max-candidates", 1).code == 2
        assert assay("log", "verify").code == 0
        for name in {event["stream"] for event in map(json.loads, assay("log", "show", "--json").out.splitlines())}:
            assert assay("resume", name).code == 2
    finally:
        subprocess.run(["umount", home], check=True)


def test_a_home_that_cannot_be_made_is_one_line_and_73(assay: Assay, contract: Path, home: Path) -> None:
    home.write_text("a file")
    said = assay("run", contract, "--provider", "mock", "--device", "cpu")
    assert (said.code, said.out, said.err.count("\n")) == (73, "", 1), said.err


@pytest.mark.parametrize("place", ["FILE/below", "/proc/nope", "/proc/nope/deeper"])
def test_a_home_in_an_impossible_place_is_one_line_and_73(
    place: str, assay: Assay, contract: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    where = place.replace("FILE", str(tmp_path / "file"))
    said = assay("run", contract, "--provider", "mock", "--device", "cpu", "--home", where)
    assert (said.code, said.out, said.err.count("\n")) == (73, "", 1), said.err
    assert said.err.startswith(f"assay: home {where} cannot be made: ")
    assert said.err.endswith("; name another folder with --home\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SandboxFault("x"), 70),
        (ImageFault("x"), 69),
        (errors.StoreCorrupt(3, "x"), 74),
        (errors.BlobCorrupt("sha256:0", "x"), 74),
        (errors.StoreTooNew("x"), 74),
        (FoldError("k", "x"), 74),
        (errors.Conflict("s", 1, 2), 75),
        (errors.LibraryTooOld("x"), 69),
        (errors.StoreReadOnly("x"), 73),
        (OSError(errno.ENOSPC, "No space left on device"), 73),
        (exits.Unavailable("x"), 69),
        (session.Interrupted("story-1", Path("/h")), 130),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("x"), None),
    ],
)
def test_each_error_has_its_code(error: BaseException, code: int | None) -> None:
    message, found = cli.verdict(error)
    assert found == code
    assert "\n" not in message


def test_every_error_of_the_event_store_has_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StoreError)]
    unmapped = [kind for kind in kinds if not any(issubclass(kind, known) for known, _ in cli.CODES)]
    assert unmapped == []


def test_a_bug_of_ours_shows_its_traceback_and_ends_with_70(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.registry.get", lambda name: 1 / 0)
    said = assay("optimize", "rmsnorm", "--device", "cpu")
    assert (said.code, said.out) == (70, "")
    assert "Traceback" in said.err
    assert said.err.endswith("assay: a bug of ours: ZeroDivisionError: division by zero\n")


def test_help_lists_every_exit_code(assay: Assay) -> None:
    said = assay("--help")
    text = " ".join(said.out.split())
    assert said.code == 0
    assert [code for code, meaning in exits.MEANING.items() if f"{code} {meaning}" not in text] == []


def test_no_command_at_all_is_wrong_usage_and_shows_the_help(assay: Assay) -> None:
    said = assay()
    assert (said.code, said.out) == (64, "")
    assert said.err.startswith("Usage: ")


def test_the_doctor_says_what_each_thing_needs(assay: Assay) -> None:
    said = assay("doctor", "--json")
    report = json.loads(said.out)
    assert said.code == (0 if report["works"] else 69)
    names = [found["name"] for found in report["findings"]]
    assert {"docker", "bwrap", "cgroups", "seccomp", "engine docker", "engine bwrap", "SQLite"} <= set(names)
    assert {"limits under docker", "limits under bwrap"} <= set(names)
    silent = [found for found in report["findings"] if not found["ok"] and not found["fix"]]
    assert silent == []


@pytest.mark.sandbox
def test_the_doctor_proves_the_limits_of_each_engine_by_an_empty_job(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_GUEST_PYTHON", str(guest_python()))
    said = assay("doctor")
    assert said.code == 0
    assert [line for line in said.out.splitlines() if "limits under" in line] == [
        "ok  limits under docker: proved",
        "ok  limits under bwrap: proved",
    ]
    monkeypatch.setattr("sandbox.canary.compare", lambda *args: ["seccomp: mode 0, not a filter"])
    said = assay("doctor")
    assert said.code == 69
    lines = [line for line in said.out.splitlines() if "limits under" in line]
    assert [line[:23] for line in lines] == ["--  limits under docker", "--  limits under bwrap:"]
    assert all(
        "seccomp: mode 0, not a filter; no job starts under this engine before they hold" in line for line in lines
    )


def test_the_doctor_works_on_a_bare_host_and_ends_with_69(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("sandbox.host.BWRAP", ("no-such-bwrap",))
    monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    said = assay("doctor")
    assert said.code == 69
    assert said.out.endswith("no sandbox works here: nothing can be run\n")
