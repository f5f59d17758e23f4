"""The command provider: a program of the user's, bounded from outside."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from runner import command
from runner.customs import MAX_REPLY_BYTES
from runner.exits import UsageError
from runner.providers import Past, ProposalError, Question
from tests.runner.stories import bundle, play

ECHO = """
import json, sys
asked = json.load(sys.stdin)
print(json.dumps({"source": asked["context"]["kernel"] + "x = %d\\n" % asked["context"]["proposal"], "risk": "low"}))
"""


def provider(tmp_path: Path, text: str, timeout_s: float = 20.0) -> command.Command:
    program = tmp_path / "program with space.py"
    program.write_text(text)
    return command.command(f'{sys.executable} "{program}"', timeout_s)


def question(index: int = 1) -> Question:
    contract = bundle()
    past = (Past("c001", "rejected", "slower", "0.5x", {"hypothesis": "h"}),)
    return Question(index, contract, contract.kernel, "baseline", past, {"main": 100.0})


def failure(asked: command.Command) -> ProposalError:
    with pytest.raises(ProposalError) as caught:
        asked.propose(question())
    return caught.value


def test_the_program_reads_one_object_and_its_object_becomes_a_proposal(tmp_path: Path) -> None:
    proposal = provider(tmp_path, ECHO).propose(question(3))
    assert proposal is not None
    assert proposal.source == bundle().kernel + b"x = 3\n"
    assert proposal.story["risk"] == "low"
    asked = json.loads(proposal.prompt or b"")
    assert sorted(asked) == ["context", "prompt"]
    assert json.loads(proposal.reply or b"")["risk"] == "low"


def test_neither_prompt_nor_context_holds_the_task(tmp_path: Path) -> None:
    proposal = provider(tmp_path, ECHO).propose(question())
    assert proposal is not None
    assert b"make_inputs" in bundle().files["task.py"]
    assert b"make_inputs" not in (proposal.prompt or b"")


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("import sys; sys.stderr.write('no key\\n'); sys.exit(3)", "provider-error", "ended with code 3: no key"),
        ("print('hello')", "bad-reply", "the reply is not JSON"),
        (f"print('x' * {MAX_REPLY_BYTES + 10})", "provider-error", f"wrote more than {MAX_REPLY_BYTES} bytes"),
        ("import os; os.kill(os.getpid(), 9)", "provider-error", "ended with code -9"),
    ],
)
def test_a_program_that_fails_costs_a_proposal_and_tells_why(
    tmp_path: Path, text: str, reason: str, detail: str
) -> None:
    found = failure(provider(tmp_path, text))
    assert found.reason == reason
    assert found.detail.startswith(detail)
    assert found.prompt


def test_a_program_that_never_answers_is_killed_with_all_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(pid)!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    found = failure(provider(tmp_path, text, 3.0))
    assert (found.reason, found.detail) == ("provider-timeout", "gave no reply within 3 s")
    deadline = time.monotonic() + 10
    while _runs(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(pid.read_text()))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_closes_stdout_but_stays_is_late_too(tmp_path: Path) -> None:
    text = "import os, time; os.close(1); time.sleep(600)"
    assert failure(provider(tmp_path, text, 2.0)).reason == "provider-timeout"


def test_a_program_may_ignore_a_large_prompt(tmp_path: Path) -> None:
    text = 'import sys; sys.stdin.close(); print(\'{"source": "def run(x): return x"}\')'
    contract = bundle(target_json={"backend": "cpu", "architecture": "host", "optimization_guidance": "g" * 500_000})
    asked = Question(1, contract, contract.kernel, "baseline", ())
    proposal = provider(tmp_path, text).propose(asked)
    assert proposal is not None
    assert proposal.source == b"def run(x): return x"


def test_no_shell_reads_the_command_line(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    asked = command.command(f"{sys.executable} -c pass ; touch {trap}", 20.0)
    failure(asked)
    assert not trap.exists()


@pytest.mark.parametrize("line", ["", None, "  ", "no-such-program-here x", '"open'])
def test_a_useless_command_line_is_refused_before_the_run(line: str | None) -> None:
    with pytest.raises(UsageError):
        command.command(line, 1.0)


def test_file_descriptors_are_not_leaked(tmp_path: Path) -> None:
    asked = provider(tmp_path, "import sys; sys.exit(1)")
    failure(asked)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        failure(asked)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_episode_on_a_command_records_prompt_and_reply(tmp_path: Path) -> None:
    text = """
import json, sys
asked = json.load(sys.stdin)["context"]
print(json.dumps({"source": "FAKE = %d  # fake-us: 40\\n\\n\\ndef run(x):\\n    return x\\n" % asked["proposal"]}))
"""
    state = play(tmp_path / "home", provider(tmp_path, text), max_candidates=1)
    proposed = state.candidates["c001"].proposed
    assert (proposed.provider, state.finished and state.finished.winner) == ("command", "c001")
    assert proposed.prompt
    assert proposed.reply
