"""Every word of the closed vocabulary is reached by some evidence, and the order of the evidence is fixed."""

from __future__ import annotations

from typing import get_args

import pytest

from sandbox.api import Outcome, SandboxFault, Status
from sandbox.status import RunStatus, Seen, classify

CASES = [
    (Outcome("exited", 0), Seen(), "ok"),
    (Outcome("exited", 0), Seen(correct=True), "ok"),
    (Outcome("killed"), Seen(correct=True), "ok"),
    (Outcome("exited", 0), Seen(correct=False), "wrong"),
    (Outcome("exited", 1), Seen(phase="build"), "compile_error"),
    (Outcome("exited", 1), Seen(), "runtime_error"),
    (Outcome("signalled", None, 11), Seen(correct=False), "runtime_error"),
    (Outcome("timeout"), Seen(), "timeout"),
    (Outcome("timeout", oom_kills=1), Seen(), "timeout"),
    (Outcome("oom", None, 9), Seen(), "oom_host"),
    (Outcome("exited", 0, oom_kills=1), Seen(correct=True), "oom_host"),
    (Outcome("signalled", None, 9, oom_kills=1), Seen(phase="build"), "oom_host"),
    (Outcome("exited", 1), Seen(gpu="oom"), "oom_gpu"),
    (Outcome("exited", 1), Seen(gpu="fault"), "gpu_fault"),
    (Outcome("timeout"), Seen(gpu="hang"), "gpu_hang"),
    (Outcome("output-limit", oom_kills=1), Seen(), "output_limit"),
    (Outcome("exited", 3), Seen(disk_full=True), "disk_limit"),
    (Outcome("pids-limit", 1), Seen(), "pids_limit"),
    (Outcome("exited", 0), Seen(protocol_broken=True), "protocol_error"),
    (Outcome("exited", 0), Seen(policy_broken=True), "policy_violation"),
    (SandboxFault("engine gone"), Seen(gpu="fault", correct=False), "infra_error"),
    (Outcome("timeout"), Seen(gpu="quarantined"), "quarantined"),
]


@pytest.mark.parametrize(("ended", "seen", "word"), CASES)
def test_evidence_gets_its_word(ended: Outcome | SandboxFault, seen: Seen, word: str) -> None:
    assert classify(ended, seen) == word


def test_every_word_is_reached() -> None:
    assert {word for _, _, word in CASES} == set(RunStatus)


def test_every_end_of_a_container_has_a_case() -> None:
    assert {ended.status for ended, _, _ in CASES if isinstance(ended, Outcome)} == set(get_args(Status))
