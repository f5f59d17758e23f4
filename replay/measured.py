"""What was seen of an arm in its pairs, in words: right or wrong, on which case, by how much, how fast, and what it said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventstore.facts import Pair, Series
from replay.fold import CandidateState
from replay.livelog import quoted


def measured(one: CandidateState) -> Iterator[str]:
    """What was seen of a candidate: how many calls were right, then each case's time beside the baseline's."""
    if one.pairs:
        yield right(one.pairs, ("candidate",))
        yield from wrong(one.pairs, ("candidate",))
    numbers = one.judged.numbers if one.judged else {}
    for case, found in numbers.get("cases", {}).items():
        own, base, speedup = found.get("median_us"), found.get("baseline_us"), found.get("speedup")
        if own and base and speedup:
            varies = f"varies by {100 * found['cv']:.1f} %, the baseline by {100 * found['baseline_cv']:.1f} %"
            yield f"{quoted(case)}: {own:.3f} us, the baseline {base:.3f} us: {speedup:.4g}x; {varies}"


def right(pairs: Sequence[Pair], arms: Sequence[str]) -> str:
    """`right on 171 of 171 calls`: every call of these arms, verification and hidden inputs included."""
    answers = [why for series in _of(pairs, arms) for why in series.why]
    return f"right on {answers.count('')} of {len(answers)} calls"


def wrong(pairs: Sequence[Pair], arms: Sequence[str]) -> Iterator[str]:
    """Per case and kind of wrongness one line; and what the guest said about it, which is its own word."""
    seen: dict[tuple[str, str, str], list[float]] = {}
    for series in _of(pairs, arms):
        for index, why in enumerate(series.why):
            if why:
                worst = series.worst[index] if index < len(series.worst) else None
                seen.setdefault((why, series.case, series.family), []).append(worst or 0.0)
    for (why, case, family), errors in seen.items():
        where = f"case {quoted(case)}" + (f", hidden inputs {quoted(family)}" if family else "")
        size = f", an error of {max(errors):.3g} times its tolerance" if max(errors) > 0 else ""
        yield f"{why}: {where}, {len(errors)} {'call' if len(errors) == 1 else 'calls'}{size}"
    for pair in pairs:
        words = [pair.claims.get(arm, {}) for arm in arms]
        load = [said["load"] for said in words if isinstance(said.get("load"), dict)]
        found = [said["detail"] for said in (*words, *load) if said.get("detail")]
        if found:
            yield f"it said {quoted(found[0])}"
            return


def _of(pairs: Sequence[Pair], arms: Sequence[str]) -> Iterator[Series]:
    return (series for pair in pairs for series in pair.series if series.arm in arms)
