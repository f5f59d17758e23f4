"""One candidate from its proposal to its promotion: the whole program in ten lines, on the public fake."""

from __future__ import annotations

from pathlib import Path

from eventstore.log import Log
from runner.fake import source
from tests.runner.stories import play


def test_a_candidate_twice_as_fast_is_proposed_built_measured_promoted_revalidated_and_wins(tmp_path: Path) -> None:
    state = play(tmp_path, [source(50.0)])
    with Log.open(tmp_path, read_only=True) as log:
        told = [event.kind for event in log.read(state.episode) if event.kind != "baseline.measured"]
    begin, end = ["episode.started", "baseline.calibrated"], ["proposals.ended", *["finalist.measured"] * 3]
    tried = ["candidate.proposed", "candidate.built", "candidate.verified", *["candidate.measured"] * 3]
    settled = ["candidate.judged", "candidate.promoted"]
    assert told == [*begin, *tried, *settled, *end, "finalist.revalidated", "episode.finished"]
    assert state.finished is not None
    assert (state.finished.outcome, state.finished.winner) == ("winner", "c001")
    assert 1.9 < (state.finished.lower or 0) < 2.0 < (state.finished.speedup or 0) * 1.01
