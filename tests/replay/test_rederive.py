from __future__ import annotations

from dataclasses import replace

import pytest

import ops.decide.judge
from eventstore import facts
from eventstore.errors import BlobMissing
from eventstore.events import Event
from eventstore.facts import Fact
from ops.decide import Rules
from replay.rederive import replay
from tests.decide.synthetic import judged_as
from tests.replay.episodes import SETTINGS, digest, played, started, stored

TOLD = played([50.0, 100.0, 20.0])
KINDS = [fact.kind for fact in TOLD]


def at(kind: str, nth: int = 0) -> int:
    """Position of the n-th event of a kind."""
    return [position for position, one in enumerate(KINDS, start=1) if one == kind][nth]


def changed(position: int, **fields: object) -> list[Event]:
    told: list[Fact] = list(TOLD)
    told[position - 1] = told[position - 1].model_copy(update=fields)
    return stored(told)


class Shelf:
    """Blobs of which some are lost."""

    def __init__(self, *lost: str) -> None:
        self.lost = lost

    def get(self, name: str) -> bytes:
        if name in self.lost:
            raise BlobMissing(name, "is not stored")
        return b""


def test_an_honest_episode_agrees_with_its_replay() -> None:
    report = replay(stored(TOLD), Shelf())
    assert (report.agree, report.divergences, report.decision_code_same) == (True, (), True)
    # calibration, three verdicts and what came of them, revalidation, end
    assert (report.events, report.checked, report.blobs_checked) == (len(TOLD), 9, 4)


@pytest.mark.parametrize(
    "told",
    [
        played([100.0]),
        played([50.0], final=3.0),
        played([10.0], change=lambda one: judged_as(one, "early-done")),
        [*TOLD[: KINDS.index("candidate.built")], facts.CandidateRejected(candidate="c001", reason="duplicate")],
        TOLD[: KINDS.index("finalist.measured") + 1],
    ],
)
def test_other_honest_stories_agree_too(told: list[Fact]) -> None:
    assert replay(stored(told)).divergences == ()


def test_an_empty_stream_does_not_agree() -> None:
    assert replay([]).agree is False


def test_a_changed_constant_of_the_rules_is_seen_where_it_first_decides_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rules, "promotion_alpha", property(lambda rules: 0.04))
    report = replay(stored(TOLD))
    assert report.divergences[0].position == at("candidate.judged")
    assert report.divergences[0].expected["verdict"] == report.divergences[0].got["verdict"] == "promote"
    assert report.divergences[0].expected["numbers"]["alpha"] == 0.04


def test_a_threshold_recorded_otherwise_changes_the_verdict_at_its_position() -> None:
    strict = started(settings={**SETTINGS, "rules": Rules(tries=4, min_speedup=4.0).settings()})
    report = replay(stored([strict, *TOLD[1:]]))
    first = report.divergences[0]
    assert (first.position, first.expected["reason"], first.got["reason"]) == (
        at("candidate.judged"),
        "below-min-speedup",
        "promoted",
    )


def test_a_changed_rule_of_the_judge_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.decide.judge._Case, "_unsteady", lambda case: "unstable")
    first = replay(stored(TOLD)).divergences[0]
    assert (first.position, first.expected["reason"]) == (at("candidate.judged"), "unstable")


def test_a_rule_that_would_have_measured_longer_is_seen() -> None:
    patient = started(settings={**SETTINGS, "rules": Rules(tries=4, min_pairs=5).settings()})
    first = replay(stored([patient, *TOLD[1:]])).divergences[0]
    assert (first.position, first.expected) == (at("candidate.judged"), "the stage is measure")


def test_a_pair_more_than_was_asked_for_is_seen() -> None:
    extra = TOLD[at("candidate.measured") - 1].model_copy(update={"index": 3})
    told = [*TOLD[: at("candidate.judged") - 1], extra, *TOLD[at("candidate.judged") - 1 :]]
    first = replay(stored(told)).divergences[0]
    assert (first.position, first.expected["verdict"], first.got["kind"]) == (
        at("candidate.judged"),
        "promote",
        "candidate.measured",
    )


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("baseline.calibrated", {"aa_halfwidth": 0.0}),
        ("candidate.judged", {"numbers": {}}),
        ("candidate.judged", {"detail": "trust me"}),
        ("candidate.promoted", {"speedup": 9.0}),
        ("candidate.rejected", {"reason": "wrong"}),
        ("finalist.revalidated", {"reason": "promoted"}),
        ("episode.finished", {"speedup": 9.0}),
    ],
)
def test_a_decision_that_was_written_otherwise_is_seen_at_its_position(kind: str, fields: dict[str, object]) -> None:
    report = replay(changed(at(kind), **fields))
    assert report.agree is False
    assert report.divergences[0].position == at(kind)
    assert report.divergences[0].kind == kind


def test_a_changed_sample_is_seen_at_the_decision_that_rests_on_it() -> None:
    position = at("candidate.measured")
    pair = TOLD[position - 1].pair
    faster = tuple(
        one.model_copy(update={"ns": tuple(n // 2 for n in one.ns)})
        if one.arm == "candidate" and one.block >= 0
        else one
        for one in pair.series
    )
    events = changed(position, pair=pair.model_copy(update={"series": faster}))
    assert replay(events).divergences[0].position == at("candidate.judged")


def test_an_event_that_was_edited_in_place_is_seen() -> None:
    events = stored(TOLD)
    events[4] = replace(events[4], at_ns=1)
    assert [(one.position, one.got) for one in replay(events).divergences] == [(5, "another hash")]


def test_an_event_that_cannot_follow_ends_the_replay_with_its_position() -> None:
    told = [*TOLD[: at("candidate.built") - 1], TOLD[at("candidate.judged") - 1]]
    report = replay(stored(told))
    assert report.divergences[-1].expected == "candidate.judged: c001 is not built"
    assert report.divergences[-1].position == at("candidate.built")


def test_a_lost_blob_is_named() -> None:
    report = replay(stored(TOLD), Shelf(digest("source 2")))
    assert [(one.position, one.expected) for one in report.divergences] == [
        (at("candidate.proposed", 1), digest("source 2"))
    ]


def test_other_decision_code_is_named_but_is_no_divergence_by_itself() -> None:
    report = replay(stored([started(decision_code=digest("old code")), *TOLD[1:]]))
    assert (report.agree, report.decision_code_same, report.recorded_code) == (True, False, digest("old code"))


def test_settings_that_cannot_be_read_are_a_divergence_and_not_a_crash() -> None:
    unknown = started(settings={**SETTINGS, "rules": {"luck": 7}})
    first = replay(stored([unknown, *TOLD[1:]])).divergences[0]
    assert (first.position, first.expected) == (
        at("baseline.calibrated"),
        "cannot be derived: rules: luck: Extra inputs are not permitted",
    )
