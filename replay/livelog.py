"""The live log: each event as zero or more lines, the same while it happens and when it is read back.

Grammar, after the TLX Agent's:   [assay] <id> status=<status> key=value key="quoted value" ...

`<id>` is `episode`, `baseline`, a candidate, `final` or `fault`. A value that holds a space, a quote or anything
unprintable is written as a JSON string, and nothing unprintable is ever written as it is: text from a candidate or a
provider cannot forge a line or steer a terminal. Times are microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from statistics import median

from eventstore.events import Event
from eventstore.facts import (
    BaselineCalibrated,
    BaselineMeasured,
    BaselineRefused,
    CandidateBuilt,
    CandidateJudged,
    CandidateMeasured,
    CandidatePromoted,
    CandidateProposed,
    CandidateRejected,
    CandidateVerified,
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Fact,
    Faulted,
    FinalistMeasured,
    FinalistRevalidated,
    Pair,
    ProposalFailed,
    ProposalsEnded,
)

PREFIX = "[assay]"
MAX_VALUE = 400
"""Characters of one value; the whole text stands in the event."""
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;/%+@=()<>*-]+")

Value = str | int | float | None


def lines(event: Event) -> list[str]:
    """The lines of a stored event."""
    return lines_of(event.fact)


def lines_of(fact: Fact) -> list[str]:
    """The lines of a fact: one status line, and for a proposal its story."""
    who, status, values = _told(fact)
    found = [line(who, {"status": status, **values})]
    if isinstance(fact, CandidateProposed):
        story = {
            "hypothesis": fact.hypothesis,
            "evidence": fact.evidence,
            "change": fact.change,
            "expected": fact.expected_effect,
            "risk": fact.risk,
        }
        if any(story.values()):
            found.append(line(who, story))
    return found


def line(who: str, values: Mapping[str, Value]) -> str:
    """One line; empty values are left out."""
    return " ".join(
        (PREFIX, quoted(who), *(f"{key}={quoted(value)}" for key, value in values.items() if value not in ("", None)))
    )


def quoted(value: Value) -> str:
    """As it stands if it is plain; else a JSON string in which everything unprintable is escaped."""
    text = str(value)
    if len(text) > MAX_VALUE:
        text = text[:MAX_VALUE] + "..."
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _told(fact: Fact) -> tuple[str, str, dict[str, Value]]:
    """Id, status, values."""
    match fact:
        case EpisodeStarted() | EpisodeResumed() | ProposalFailed() | ProposalsEnded() | Faulted() | EpisodeFinished():
            return _told_episode(fact)
        case BaselineMeasured() | BaselineCalibrated() | BaselineRefused():
            return ("baseline", *_told_baseline(fact))
        case FinalistMeasured() | FinalistRevalidated():
            return ("final", *_told_finalist(fact))
    return (fact.candidate, *_told_candidate(fact))


def _told_episode(
    fact: EpisodeStarted | EpisodeResumed | ProposalFailed | ProposalsEnded | Faulted | EpisodeFinished,
) -> tuple[str, str, dict[str, Value]]:
    match fact:
        case EpisodeStarted():
            values: dict[str, Value] = {
                "operator": fact.operator,
                "bundle": short(fact.bundle),
                "dtype": fact.dtype,
                "shape": shape(fact.shape),
                "device": fact.device_label,
                "engine": fact.engine,
            }
            return "episode", "started", values
        case EpisodeResumed():
            return "episode", "resumed", {}
        case ProposalFailed():
            failed: dict[str, Value] = {"provider": fact.provider, "reason": fact.reason, "diagnostics": fact.detail}
            return f"proposal-{fact.index}", "failed", failed
        case ProposalsEnded():
            return "episode", "proposals-ended", {"reason": fact.reason}
        case Faulted():
            return "fault", "faulted", {"stage": fact.stage, "attempt": fact.attempt, "diagnostics": fact.detail}
    ended: dict[str, Value] = {
        "outcome": fact.outcome,
        "winner": fact.winner,
        "aggregate_speedup": times(fact.speedup),
        "lower": times(fact.lower),
        "reason": fact.stopping_reason,
    }
    return "episode", "finished", ended


def _told_baseline(fact: BaselineMeasured | BaselineCalibrated | BaselineRefused) -> tuple[str, dict[str, Value]]:
    match fact:
        case BaselineMeasured():
            return "measured", {"pair": fact.index, **_cases(fact.pair, "baseline")}
        case BaselineCalibrated():
            cases: dict[str, Value] = {
                f"case[{case}]": f"median={us:.3f}us" for case, us in sorted(fact.median_us.items())
            }
            return "baseline", {"aa_halfwidth": f"{100 * fact.aa_halfwidth:.2f}%", **cases}
    return "refused", {"reason": fact.reason, "diagnostics": fact.detail}


def _told_finalist(fact: FinalistMeasured | FinalistRevalidated) -> tuple[str, dict[str, Value]]:
    if isinstance(fact, FinalistMeasured):
        return "measured", {"candidate": fact.candidate, "pair": fact.index, **_cases(fact.pair, "candidate")}
    values: dict[str, Value] = {"candidate": fact.candidate, "reason": fact.reason, "diagnostics": fact.detail}
    return "revalidated" if fact.passed else "baseline", values


def _told_candidate(
    fact: CandidateProposed
    | CandidateBuilt
    | CandidateVerified
    | CandidateMeasured
    | CandidateJudged
    | CandidateRejected
    | CandidatePromoted,
) -> tuple[str, dict[str, Value]]:
    status = fact.kind.partition(".")[2]
    values: dict[str, Value] = {}
    match fact:
        case CandidateProposed():
            values = {"provider": fact.provider, "source": short(fact.source)}
        case CandidateVerified():
            values = {"right": f"{fact.right}/{fact.calls}"}
        case CandidateMeasured():
            values = {"pair": fact.index, "over": fact.incumbent, **_cases(fact.pair, "candidate")}
        case CandidateJudged():
            values = {
                "verdict": fact.verdict,
                "reason": fact.reason,
                "aggregate_speedup": times(fact.numbers.get("speedup")),
                "lower": times(fact.numbers.get("lower")),
                "diagnostics": fact.detail,
            }
        case CandidateRejected():
            values = {"reason": fact.reason, "diagnostics": fact.detail}
        case CandidatePromoted():
            values = {"over": fact.over, "aggregate_speedup": times(fact.speedup), "lower": times(fact.lower)}
    return status, values


def _cases(pair: Pair, arm: str) -> dict[str, Value]:
    """Per case: whether every call of the arm was right, and the median of its interleaved calls."""
    values: dict[str, Value] = {f"case[{case}]": value for case, value in _case_values(pair, arm)}
    why = next((why for series in pair.series if series.arm == arm for why in series.why if why), "")
    if why:
        values |= {"why": why, "said": pair.claims.get(arm, {}).get("detail", "")}
    return values


def _case_values(pair: Pair, arm: str) -> Iterator[tuple[str, str]]:
    of_arm = [series for series in pair.series if series.arm == arm]
    for case in sorted({series.case for series in of_arm}):
        found = [series for series in of_arm if series.case == case]
        right = "correct" if not any(why for series in found for why in series.why) else "incorrect"
        timed = [ns for series in found if series.block >= 0 for ns in series.ns]
        yield case, f"{right},median={median(timed) / 1e3:.3f}us" if timed else right


def short(digest: str) -> str:
    """A digest for the eye."""
    return digest[: len("sha256:") + 12]


def shape(sizes: dict[str, int]) -> str:
    """`B=8,T=2048`."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def times(ratio: float | None) -> str:
    """`1.2500x`; empty when there is no number."""
    return "" if ratio is None else f"{ratio:.4f}x"
