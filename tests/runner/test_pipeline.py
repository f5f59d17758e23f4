"""How an episode ends, and by which events it gets there; on the public fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventstore.facts import Pair
from eventstore.log import Log
from ops.decide.reasons import REASONS
from replay.fold import fold
from replay.rederive import replay
from runner.bundle import Bundle, BundleError, from_files
from runner.context import order_seed
from runner.customs import MAX_SOURCE_BYTES
from runner.fake import FakeLab, source
from runner.lab import PairPlan
from runner.providers import ProposalError
from sandbox.api import SandboxFault
from tests.runner.stories import Listed, bundle, kinds, play


def fates(state: object) -> dict[str, str]:
    return {
        name: "promoted" if one.promoted else one.rejected.reason if one.rejected else "open"
        for name, one in state.candidates.items()  # type: ignore[attr-defined]
    }


def test_every_way_to_fail_has_its_own_reason_and_the_good_one_between_them_wins(tmp_path: Path) -> None:
    sources = [
        source(100.0),  # the baseline's own text
        source(50.0, "wrong"),
        source(50.0, "crash"),
        source(50.0, "build-error"),
        b"# " + b"x" * MAX_SOURCE_BYTES,
        source(200.0),
        source(40.0),
        source(40.0) + b"\n# only a comment and   spaces\n",
        source(30.0, "wrong-later"),
    ]
    state = play(tmp_path, sources, max_candidates=9)
    assert fates(state) == {
        "c001": "duplicate",
        "c002": "wrong",
        "c003": "crashed",
        "c004": "build-error",
        "c005": "too-large",
        "c006": "slower",
        "c007": "promoted",
        "c008": "duplicate",
        "c009": "wrong",
    }
    assert state.finished is not None
    assert (state.finished.outcome, state.finished.winner) == ("winner", "c007")
    assert set(fates(state).values()) <= set(REASONS)


def test_what_is_no_new_candidate_never_reaches_a_container(tmp_path: Path) -> None:
    lab = FakeLab()
    play(tmp_path, [source(100.0), b"# " + b"x" * MAX_SOURCE_BYTES], lab)
    assert [asked for asked in lab.asked if "-c00" in asked] == []


def test_a_candidate_as_fast_as_the_baseline_does_not_win(tmp_path: Path) -> None:
    state = play(tmp_path, [source(99.9)])
    assert state.finished is not None
    assert (state.finished.outcome, state.finished.winner) == ("no-winner", None)
    assert fates(state)["c001"] in ("ambiguous", "not-better", "below-min-speedup")


def test_a_second_promotion_must_beat_the_first(tmp_path: Path) -> None:
    state = play(tmp_path, [source(50.0), source(60.0), source(20.0)])
    assert fates(state) == {"c001": "promoted", "c002": "slower", "c003": "promoted"}
    assert [state.candidates[name].incumbent_at_measure for name in fates(state)] == ["baseline", "c001", "c001"]
    arms = [sorted({one.arm for one in state.candidates[name].pairs[0].series}) for name in ("c001", "c002")]
    assert arms == [["baseline", "candidate"], ["baseline", "candidate", "incumbent"]]


def test_a_finalist_that_is_wrong_when_it_is_revalidated_loses_and_the_one_before_it_is_revalidated(
    tmp_path: Path,
) -> None:
    state = play(tmp_path, [source(50.0), source(20.0, "wrong-final")])
    assert {name: found.passed for name, found in state.revalidated.items()} == {"c002": False, "c001": True}
    assert state.finished is not None
    assert state.finished.winner == "c001"


def test_a_candidate_that_is_wrong_on_hidden_inputs_is_never_promoted(tmp_path: Path) -> None:
    """Hidden families are in every pair: a kernel cannot wait for the revalidation to behave."""
    state = play(tmp_path, [source(20.0, "wrong-hidden")])
    rejected = state.candidates["c001"].rejected
    assert rejected is not None
    assert rejected.reason == "wrong"


def test_a_lone_finalist_that_does_not_hold_leaves_the_baseline(tmp_path: Path) -> None:
    state = play(tmp_path, [source(20.0, "wrong-final")])
    assert state.finished is not None
    assert (state.finished.outcome, state.finished.stopping_reason) == ("no-winner", "finalist-revalidation-failed")


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("wrong", "wrong"), ("crash", "guest-died"), ("build-error", "baseline-crashed")]
)
def test_a_baseline_that_fails_by_itself_is_refused_before_any_proposal(
    tmp_path: Path, behaviour: str, reason: str
) -> None:
    files = {**bundle().files, "kernel.py": source(100.0, behaviour)}
    state = play(tmp_path, [source(50.0)], contract=from_files(files))
    assert state.refused is not None
    assert state.finished is not None
    assert (state.refused.reason, state.finished.outcome, state.proposals) == (reason, "refused", 0)


def test_a_task_that_raises_ends_the_episode_and_not_only_the_run(tmp_path: Path) -> None:
    class Raising(FakeLab):
        def pair(self, bundle: Bundle, plan: PairPlan) -> Pair:
            raise BundleError("task.py: reference: KeyError: 'k'")

    state = play(tmp_path, [source(50.0)], lab=Raising())
    assert state.refused is not None
    assert state.finished is not None
    assert (state.refused.reason, state.finished.outcome, state.proposals) == ("task-error", "refused", 0)
    assert "KeyError" in state.refused.detail
    with Log.open(tmp_path, read_only=True) as log:
        assert replay(log.read(state.episode)).agree


def test_a_failed_proposal_costs_budget_and_its_prompt_and_reply_are_kept(tmp_path: Path) -> None:
    failing = ProposalError("bad-reply", "not JSON", b"asked", b"answered")
    state = play(tmp_path, [failing, source(50.0)], max_candidates=2)
    assert fates(state) == {"c001": "promoted"}
    with Log.open(tmp_path, read_only=True) as log:
        failure = state.failures[0]
        assert (failure.index, failure.reason, failure.detail) == (1, "bad-reply", "not JSON")
        assert (log.blobs.get(str(failure.prompt)), log.blobs.get(str(failure.reply))) == (b"asked", b"answered")


@pytest.mark.parametrize(
    ("given", "flags", "reason"),
    [
        ([source(50.0)], {}, "exhausted"),
        ([source(50.0), source(40.0)], {"max_candidates": 1}, "budget"),
        ([source(50.0)], {"max_total_seconds": 1e-9}, "time"),
    ],
)
def test_the_search_says_why_it_ended(tmp_path: Path, given: list[bytes], flags: dict[str, float], reason: str) -> None:
    state = play(tmp_path, given, **flags)
    assert state.ended is not None
    assert state.ended.reason == reason


def test_two_faults_of_ours_are_retried_and_change_no_verdict(tmp_path: Path) -> None:
    state = play(tmp_path, [source(50.0)], FakeLab(faults=2))
    assert [(one.stage, one.attempt) for one in state.faults] == [("baseline", 1), ("baseline", 2)]
    assert state.finished is not None
    assert state.finished.outcome == "winner"


def test_three_faults_in_a_row_end_the_episode_as_our_fault_and_say_nothing_about_a_candidate(tmp_path: Path) -> None:
    class Breaks(FakeLab):
        def build(self, contract, text, unit):  # type: ignore[no-untyped-def]
            if "c001" in unit:
                raise SandboxFault("engine gone")
            return super().build(contract, text, unit)

    state = play(tmp_path, [source(50.0)], Breaks())
    assert kinds(tmp_path)[-4:] == ["faulted", "faulted", "faulted", "episode.finished"]
    assert state.finished is not None
    assert (state.finished.outcome, state.finished.winner) == ("fault", None)
    assert fates(state) == {"c001": "open"}


def test_unit_names_are_never_used_twice_and_fit_a_container_name(tmp_path: Path) -> None:
    lab = FakeLab(faults=2)
    play(tmp_path, [source(50.0)], lab)
    units = [asked.split()[1] for asked in lab.asked]
    assert len(units) == len(set(units))
    assert [unit for unit in units if len(unit) > 60 or not unit.replace("-", "").isalnum()] == []


def test_the_order_of_arms_is_derived_from_seed_and_unit_alone() -> None:
    assert order_seed(1, "u") == order_seed(1, "u")
    assert len({order_seed(1, "u"), order_seed(2, "u"), order_seed(1, "v")}) == 3


def test_a_replay_of_a_whole_episode_agrees(tmp_path: Path) -> None:
    sources = [source(50.0), source(60.0), source(9.0, "crash"), source(9.0, "build-error"), source(20.0)]
    play(tmp_path, [*sources, ProposalError("provider-error", "no")], FakeLab(faults=1))
    with Log.open(tmp_path, read_only=True) as log:
        report = replay(log.read("story-1"), log.blobs)
    assert (report.agree, report.divergences) == (True, ())


def test_what_a_provider_is_told_is_the_past_and_never_the_task(tmp_path: Path) -> None:
    questions = []

    class Curious(Listed):
        def propose(self, question):  # type: ignore[no-untyped-def]
            questions.append(question)
            return super().propose(question)

    play(tmp_path, Curious([source(50.0), source(70.0)]))
    assert [question.index for question in questions] == [1, 2, 3]
    assert [question.best_name for question in questions] == ["baseline", "c001", "c001"]
    assert [(past.candidate, past.verdict, past.reason) for past in questions[2].history] == [
        ("c001", "promoted", "promoted"),
        ("c002", "rejected", "slower"),
    ]


def test_the_log_alone_gives_the_state_that_the_run_ended_with(tmp_path: Path) -> None:
    state = play(tmp_path, [source(50.0)])
    with Log.open(tmp_path, read_only=True) as log:
        assert fold("story-1", log.read("story-1")) == state
