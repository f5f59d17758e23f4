"""The full account of one episode: what was compared, what was measured, and why each candidate ended as it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventstore.facts import Pair
from ops.decide.reasons import EPISODE, REASONS
from replay import measured
from replay.fold import CandidateState, State
from replay.leaderboard import bundle_name
from replay.livelog import quoted, shape, short, times


def show(state: State) -> dict[str, Any]:
    """JSON-able. Sources and logs are named by digest; times are microseconds, ratios plain."""
    started = state.started
    return {
        "episode": state.episode,
        "stage": state.stage,
        "version": state.version,
        "started": started.model_dump(mode="json") if started else None,
        "baseline": _baseline(state),
        "candidates": [_candidate(one) for one in state.candidates.values()],
        "failed_proposals": [one.model_dump(mode="json", exclude={"kind"}) for one in state.failures],
        "proposals_ended": state.ended.reason if state.ended else None,
        "revalidated": [
            {**found.model_dump(mode="json", exclude={"kind"}), "pairs": _pairs(state.finalist_pairs.get(name, ()))}
            for name, found in state.revalidated.items()
        ],
        "faults": [one.model_dump(mode="json", exclude={"kind"}) for one in state.faults],
        "finished": state.finished.model_dump(mode="json", exclude={"kind"}) if state.finished else None,
    }


def _baseline(state: State) -> dict[str, Any]:
    calibration, refused = state.calibration, state.refused
    return {
        "pairs": _pairs(state.aa_pairs),
        "calibration": calibration.model_dump(mode="json", exclude={"kind"}) if calibration else None,
        "refused": refused.model_dump(mode="json", exclude={"kind"}) if refused else None,
    }


def _candidate(one: CandidateState) -> dict[str, Any]:
    verdict, reason, detail = _fate(one)
    return {
        **one.proposed.model_dump(mode="json", exclude={"kind"}),
        "built": one.built.model_dump(mode="json", exclude={"kind", "candidate"}) if one.built else None,
        "verified": one.verified.model_dump(mode="json", exclude={"kind", "candidate"}) if one.verified else None,
        "incumbent_at_measure": one.incumbent_at_measure,
        "pairs": _pairs(one.pairs),
        "verdict": verdict,
        "reason": reason,
        "meaning": REASONS.get(reason, ""),
        "detail": detail,
        "numbers": one.judged.numbers if one.judged else {},
        "promoted": one.promoted.model_dump(mode="json", exclude={"kind", "candidate"}) if one.promoted else None,
    }


def _fate(one: CandidateState) -> tuple[str, str, str]:
    """Verdict, reason, detail; the verdict is empty while it is open."""
    if one.promoted and one.judged:
        return "promoted", one.judged.reason, one.judged.detail
    if one.judged and one.judged.verdict == "ambiguous":
        return "ambiguous", one.judged.reason, one.judged.detail
    if one.rejected:
        return "rejected", one.rejected.reason, one.rejected.detail
    return "", "", ""


def _pairs(pairs: tuple[Pair, ...]) -> list[dict[str, Any]]:
    """Each pair without its samples, which stand in the event."""
    return [
        {
            "unit": pair.unit,
            "grade": pair.grade,
            "calls": sum(len(series.ns) for series in pair.series),
            "wrong": sum(1 for series in pair.series for why in series.why if why),
            "bundle_intact": pair.bundle_intact,
            "outcomes": pair.outcomes,
            "device": pair.device,
        }
        for pair in pairs
    ]


def text(state: State) -> str:
    """The same for people, a line for each thing that happened."""
    return "\n".join(_text(state)) + "\n"


def _text(state: State) -> Iterator[str]:
    yield f"episode    {state.episode} ({state.stage})"
    started = state.started
    if started is None:
        return
    what = " ".join(filter(None, (bundle_name(started), shape(started.shape), started.dtype or "")))
    yield f"bundle     {short(started.bundle)} {what}".rstrip()
    yield f"where      {quoted(started.device_label)}, {started.engine}"
    yield from _baseline_text(state)
    for one in state.candidates.values():
        yield from _candidate_text(one)
    for failure in state.failures:
        yield f"proposal   {failure.index} failed: {failure.reason}{_and(failure.detail)}"
        yield f"{'':<10} {REASONS.get(failure.reason, '')}"
    for name, found in state.revalidated.items():
        held = "held" if found.passed else "did not hold"
        yield f"final      {name} {held}: {found.reason}{_and(found.detail)}"
        yield from (f"{'':<10} {line}" for line in measured.wrong(state.finalist_pairs.get(name, ()), ("candidate",)))
    if state.faults:
        yield f"faults     {len(state.faults)}, of our own; the last: {quoted(state.faults[-1].detail)}"
    finished = state.finished
    if finished:
        win = (
            f": {finished.winner} {times(finished.speedup)} (at least {times(finished.lower)})"
            if finished.winner
            else ""
        )
        yield f"outcome    {finished.outcome}{win}, {finished.stopping_reason}"
        yield f"{'':<10} {EPISODE.get(finished.stopping_reason, '')}"
    else:
        yield f"outcome    none yet; if nobody is at work on it, go on with: assay resume {state.episode} (in the same --home)"


def _baseline_text(state: State) -> Iterator[str]:
    if state.refused:
        yield f"baseline   refused: {state.refused.reason}{_and(state.refused.detail)}"
        yield f"{'':<10} {EPISODE.get(state.refused.reason, '')}"
        yield from (f"{'':<10} {line}" for line in measured.wrong(state.aa_pairs, ("baseline", "baseline-b")))
    if state.calibration:
        found = state.calibration
        cases = ", ".join(f"{quoted(case)} {us:.3f} us" for case, us in found.median_us.items())
        yield f"baseline   {cases}; A/A half-width {100 * found.aa_halfwidth:.2f} % over {len(state.aa_pairs)} pairs"


def _candidate_text(one: CandidateState) -> Iterator[str]:
    verdict, reason, detail = _fate(one)
    fate = f"{verdict}: {reason}" if verdict else "open"
    yield f"{one.id:<10} {fate}{_and(detail)}"
    if reason in REASONS and not one.promoted:
        yield f"{'':<10} {REASONS[reason]}"
    yield from (f"{'':<10} {line}" for line in measured.measured(one))
    if one.proposed.hypothesis:
        yield f"{'':<10} hypothesis {quoted(one.proposed.hypothesis)}"
    yield from _compiled(one)


def _compiled(one: CandidateState) -> Iterator[str]:
    """A line for each kernel that the build container compiled. Its word, and absent from logs older than that step."""
    claim = (one.built.claim if one.built else {}).get("compile", {})
    for kernel in claim.get("kernels", ()):
        numbers = ("registers", "shared_bytes", "local_bytes", "num_warps")
        registers, shared, local, warps = (kernel.get(key, "?") for key in numbers)
        yield (
            f"{'':<10} kernel {quoted(kernel.get('name', ''))} sm_{claim.get('arch', '?')}: {registers} registers, "
            f"{shared} B shared, {local} B local (spills), {warps} warps"
        )
    if claim.get("state") == "refused":
        yield f"{'':<10} compiled on the GPU only{_and(str(claim.get('why', '')))}"


def _and(detail: str) -> str:
    return f", {quoted(detail)}" if detail else ""
