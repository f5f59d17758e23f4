from __future__ import annotations

from functools import reduce
from types import SimpleNamespace

import pytest

from eventstore import facts
from eventstore.facts import Fact
from replay.fold import FoldError, State, fold, fold_all, step
from tests.decide.synthetic import aa, judged_as
from tests.replay.episodes import played, proposed, started, stored

TWICE = played([50.0, 100.0])
FAULT = facts.Faulted(stage="measure", detail="engine gone", attempt=1)


def after(told: list[Fact]) -> State:
    return reduce(step, told, State("e-1"))


def until(kind: str, told: list[Fact] = TWICE) -> list[Fact]:
    """Everything before the first event of a kind."""
    return told[: [fact.kind for fact in told].index(kind)]


def test_an_episode_with_a_winner_goes_through_every_stage() -> None:
    stages = [after(TWICE[:n]).stage for n in range(len(TWICE) + 1)]
    compact = [stage for n, stage in enumerate(stages) if n == 0 or stage != stages[n - 1]]
    once = ["build", "measure", "judge", "settle", "propose"]
    assert compact == ["start", "baseline", "propose", *once, *once, "finalist", "finish", "done"]


def test_the_fold_of_stored_events_is_the_fold_of_their_facts() -> None:
    found = fold("e-1", stored(TWICE, first=41))
    assert (found.version, found.position) == (len(TWICE), 40 + len(TWICE))
    told = after(TWICE)
    assert found == State(**{**vars(told), "position": found.position} | {"episode": "e-1"})


def test_the_winner_is_the_promoted_candidate_that_held() -> None:
    found = after(TWICE)
    assert (found.incumbent, found.winner, found.finished.outcome, found.finished.winner) == (
        "c001",
        "c001",
        "winner",
        "c001",
    )
    assert [one.settled for one in found.candidates.values()] == [True, True]
    assert found.candidates["c002"].rejected.reason == "slower"
    assert found.candidates["c002"].incumbent_at_measure == "c001"


def test_a_finalist_that_does_not_hold_gives_way_to_the_one_before() -> None:
    told = played([50.0, 20.0], final=3.0)
    found = after(told)
    assert {name: one.passed for name, one in found.revalidated.items()} == {"c002": True}
    fallen = played([50.0, 20.0], final=5.5)
    found = after(fallen)
    assert {name: one.passed for name, one in found.revalidated.items()} == {"c002": False, "c001": False}
    assert (found.incumbent, found.finished.outcome) == ("baseline", "no-winner")
    assert found.finished.stopping_reason == "finalist-revalidation-failed"


def test_an_episode_without_a_better_candidate_has_no_winner() -> None:
    found = after(played([100.0, 150.0]))
    assert found.finished == facts.EpisodeFinished(outcome="no-winner", stopping_reason="no-candidate-promoted")
    assert [one.rejected.reason for one in found.candidates.values()] == ["ambiguous", "slower"]


def test_a_refused_baseline_finishes_at_once() -> None:
    told = [*until("baseline.calibrated")]
    told[-1] = facts.BaselineMeasured(index=3, pair=judged_as(aa(1)[0], "wrong", arm="baseline"))
    from replay.decisions import decision

    refusal = decision(after(told))
    assert refusal == facts.BaselineRefused(reason="wrong", detail="A/A pair 3, baseline, case main")
    assert decision(after([*told, refusal])) == facts.EpisodeFinished(
        outcome="refused", stopping_reason="baseline-refused"
    )


def test_the_third_fault_in_a_row_finishes_and_progress_in_between_forgives() -> None:
    told = until("candidate.built")
    assert [after([*told, *[FAULT] * n]).stage for n in range(4)] == ["build", "build", "build", "finish"]
    built = facts.CandidateBuilt(candidate="c001", claim={}, outcome={})
    forgiven = after([*told, FAULT, FAULT, facts.EpisodeResumed(), FAULT])
    assert forgiven.stage == "finish"
    forgiven = after([*told, FAULT, FAULT, built, FAULT, FAULT])
    assert (forgiven.stage, len(forgiven.recent_faults), len(forgiven.faults)) == ("measure", 2, 4)


def test_a_duplicate_is_rejected_without_a_build() -> None:
    rejected = facts.CandidateRejected(candidate="c001", reason="duplicate")
    found = after([*until("candidate.built"), rejected])
    assert (found.stage, found.current, found.proposals) == ("propose", None, 1)


def test_failed_proposals_count() -> None:
    failed = facts.ProposalFailed(index=1, provider="command", reason="provider-error")
    assert after([*until("candidate.proposed"), failed, proposed(1)]).proposals == 2


PAIR = aa(1)[0]


@pytest.mark.parametrize(
    ("before", "fact", "said"),
    [
        ([], proposed(1), "candidate.proposed: the episode has not started"),
        ([started()], started(), "episode.started: the episode has started already"),
        ([started()], facts.BaselineMeasured(index=1, pair=PAIR), "baseline.measured: index 1 after 0 A/A pairs"),
        (
            [started()],
            facts.BaselineCalibrated(aa_halfwidth=0, median_us={}),
            "baseline.calibrated: nothing was measured",
        ),
        ([started()], proposed(1), "candidate.proposed: the baseline is not calibrated"),
        (until("candidate.built"), proposed(2), "candidate.proposed: candidate c001 is not settled"),
        (
            until("candidate.proposed"),
            facts.ProposalFailed(index=2, provider="x", reason="bad-reply"),
            "proposal.failed: index 2 after 0 proposals",
        ),
        (
            until("candidate.built"),
            facts.CandidateMeasured(candidate="c001", index=0, incumbent="baseline", pair=PAIR),
            "candidate.measured: c001 is not built",
        ),
        (
            until("candidate.measured"),
            facts.CandidateMeasured(candidate="c001", index=0, incumbent="c009", pair=PAIR),
            "candidate.measured: c009 is not the incumbent",
        ),
        (
            until("candidate.measured"),
            facts.CandidateJudged(candidate="c001", verdict="promote", reason="promoted"),
            "candidate.judged: c001 was not measured",
        ),
        (
            until("candidate.measured"),
            facts.CandidatePromoted(candidate="c001", over="baseline", speedup=9.0, lower=8.0),
            "candidate.promoted: c001 has no such verdict",
        ),
        (
            until("candidate.promoted"),
            facts.CandidateRejected(candidate="c001", reason="slower"),
            "candidate.rejected: c001 is to be promoted",
        ),
        (
            until("candidate.promoted"),
            facts.CandidatePromoted(candidate="c001", over="c007", speedup=9.0, lower=8.0),
            "candidate.promoted: c007 is not the incumbent",
        ),
        (
            until("finalist.measured"),
            facts.FinalistMeasured(candidate="c002", index=0, pair=PAIR),
            "finalist.measured: c002 is not the finalist",
        ),
        (
            until("finalist.measured"),
            facts.FinalistRevalidated(candidate="c001", passed=True, reason="revalidated"),
            "finalist.revalidated: c001 was not measured again",
        ),
        (
            until("finalist.revalidated"),
            facts.EpisodeFinished(outcome="winner", winner="c001"),
            "episode.finished: c001 is not the revalidated finalist",
        ),
        (
            until("finalist.revalidated"),
            facts.EpisodeFinished(outcome="no-winner"),
            "episode.finished: the search has not ended without a winner",
        ),
        (TWICE, FAULT, "faulted: the episode is finished"),
    ],
)
def test_what_cannot_have_happened_is_refused(before: list[Fact], fact: Fact, said: str) -> None:
    with pytest.raises(FoldError) as refused:
        step(after(before), fact)
    assert str(refused.value) == said


def test_a_refusal_names_the_position() -> None:
    events = stored([*until("candidate.built"), proposed(2)], first=7)
    with pytest.raises(FoldError, match=r"position 14: candidate\.proposed: candidate c001 is not settled"):
        fold("e-1", events)


def test_a_gap_in_the_stream_is_refused() -> None:
    events = stored(TWICE)
    with pytest.raises(FoldError, match=r"position 3: baseline\.measured: version 3 of e-1 after version 1 of e-1"):
        fold("e-1", [events[0], *events[2:]])


def test_streams_that_are_no_episode_are_left_out() -> None:
    note = SimpleNamespace(stream="keys", kind="key.added")
    assert list(fold_all([note, *stored(TWICE)])) == ["e-1"]
