from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import facts
from replay.livelog import MAX_VALUE, line, lines, lines_of, quoted
from tests.replay.episodes import digest, played, proposed, started, stored

TOLD = played([50.0])


def test_an_episode_reads_as_its_story() -> None:
    text = [line for event in stored(TOLD) for line in lines(event)]
    statuses = [one.split("status=")[1].split()[0] for one in text if "status=" in one]
    assert statuses == [
        "started",
        *["measured"] * 4,
        "baseline",
        "proposed",
        "built",
        *["measured"] * 3,
        "judged",
        "promoted",
        "proposals-ended",
        *["measured"] * 3,
        "revalidated",
        "finished",
    ]


def test_the_lines_of_a_promotion_are_exactly_these() -> None:
    promoted = facts.CandidatePromoted(candidate="c001", over="baseline", speedup=1.98766, lower=1.9)
    assert lines_of(promoted) == ["[assay] c001 status=promoted over=baseline aggregate_speedup=1.9877x lower=1.9000x"]


def test_a_proposal_tells_its_story_on_a_second_line() -> None:
    told = proposed(1).model_copy(update={"hypothesis": "fewer programs", "risk": "none"})
    assert lines_of(told) == [
        f"[assay] c001 status=proposed provider=mock source={digest('source 1')[:19]}",
        '[assay] c001 hypothesis="fewer programs" risk=none',
    ]


def test_the_start_names_what_is_compared_and_where() -> None:
    assert lines_of(started()) == [
        f"[assay] episode status=started operator=rmsnorm bundle={digest('bundle')[:19]} dtype=fp32 "
        '"shape"=B=1,D=64 device=cpu-interpreter engine=fake'.replace('"shape"', "shape")
    ]


def test_a_wrong_call_is_seen_in_the_line_of_its_pair() -> None:
    measured = next(fact for fact in TOLD if fact.kind == "candidate.measured")
    assert "case[main]=correct,median=" in lines_of(measured)[0]
    wrong = tuple(one.model_copy(update={"why": ("nan",) * len(one.ns)}) for one in measured.pair.series)
    bad = measured.model_copy(update={"pair": measured.pair.model_copy(update={"series": wrong})})
    assert "case[main]=incorrect,median=" in lines_of(bad)[0]
    assert lines_of(bad)[0].endswith(" why=nan")
    spoken = bad.pair.model_copy(update={"claims": {"candidate": {"detail": "ValueError: my bad\nforged"}}})
    told = lines_of(bad.model_copy(update={"pair": spoken}))
    assert (len(told), told[0].endswith(' why=nan said="ValueError: my bad\\nforged"')) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\n[assay] c009 status=promoted", '"a\\n[assay] c009 status=promoted"'),
        ("\x1b[2J\x9b", '"\\u001b[2J\\u009b"'),
        ("\u202egnp.exe", '"\\u202egnp.exe"'),
        ("\U000e0041", '"\\udb40\\udc41"'),
        ("größer", '"größer"'),
    ],
)
def test_text_from_a_stranger_cannot_forge_a_line_or_steer_a_terminal(text: str, said: str) -> None:
    assert quoted(text) == said


@given(st.text())
def test_every_value_is_one_printable_word(text: str) -> None:
    said = quoted(text)
    assert said.isprintable()
    assert len(shlex.split(f"x={said}")) == 1 or "'" in said


def test_a_long_value_is_cut() -> None:
    assert len(quoted("x" * 10_000)) == MAX_VALUE + len("...")


def test_empty_values_are_left_out() -> None:
    assert line("x", {"a": None, "b": "", "c": 0}) == "[assay] x c=0"


def test_every_kind_of_event_has_a_line() -> None:
    few = [
        facts.EpisodeResumed(),
        facts.Faulted(stage="build", detail="gone", attempt=1),
        facts.ProposalFailed(index=2, provider="command", reason="bad-reply"),
        facts.BaselineRefused(reason="wrong"),
        facts.CandidateVerified(candidate="c001", right=2, calls=3),
        facts.CandidateRejected(candidate="c001", reason="wrong"),
    ]
    assert [one.split(" ", 1)[1] for fact in few for one in lines_of(fact)] == [
        "episode status=resumed",
        "fault status=faulted stage=build attempt=1 diagnostics=gone",
        "proposal-2 status=failed provider=command reason=bad-reply",
        "baseline status=refused reason=wrong",
        "c001 status=verified right=2/3",
        "c001 status=rejected reason=wrong",
    ]
