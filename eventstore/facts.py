"""Every kind of event, as frozen models. A kind is a short literal for ever: a new field has a default, or it is a new kind.

One episode is one stream. Large bodies (sources, logs, plans) are blobs, named here by digest; raw timing samples are small and
stand in the event itself, so that every decision can be derived again from the log alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""Identity of a bundle, blob, image or source."""
Name = Annotated[str, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Grade = Literal["plan", "bracket", "shared"]
"""Grade of evidence; never mixed in one comparison."""


class Frozen(BaseModel):
    """Base of all that enters the log."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="null")


class Series(Frozen):
    """Consecutive bracket calls of one arm on one case. One input, one check and one time per call."""

    arm: Name
    """`baseline`, `incumbent`, `candidate`, or `baseline-b` in an A/A pair."""
    case: Name
    """Case id of the bundle."""
    block: int
    """Interleaving round inside its pair. -1: verification (also timed, not used for speed); -2: alone, before the
    candidate existed; -3: alone, after the candidate was destroyed."""
    ns: tuple[int, ...]
    """Judge's host clock, input released to private copy of the output held, nanoseconds; one per call."""
    why: tuple[str, ...]
    """Per call: "" if the output was right, else a reason of `ops.decide.reasons`."""
    worst: tuple[Finite | None, ...] = ()
    """Per call: largest error as a multiple of its tolerance; above 1 is wrong. None when no output could be compared."""
    family: str = ""
    """Hidden input family; empty is the task's own distribution."""


class Pair(Frozen):
    """What one measurement unit returned: fresh processes for every arm, measured side by side. The unit of replication."""

    unit: Name
    """Name of the measurement unit, never used twice."""
    grade: Grade
    """Grade of evidence of every series in it."""
    series: tuple[Series, ...]
    """In the order in which they were measured."""
    secret: str
    """Hex. Input seed of call n is HMAC-SHA256(secret, n). Known to nobody but the judge until every guest was dead."""
    claims: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Per arm, what the guest said of itself (versions, load errors). Claims, not facts."""
    outcomes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Per container, what the sandbox saw from outside."""
    device: dict[str, Any] = Field(default_factory=dict)
    """Device state around the blocks: NVML clocks, throttle reasons, temperature, foreign processes; load on CPU. On a GPU also
    `gate`: what was found `before` and `after` (`docs/gpu-gate.md`)."""
    bundle_intact: bool = True
    """The frozen bundle and each arm's projection hashed the same before and after."""


class EpisodeStarted(Frozen):
    kind: Literal["episode.started"] = "episode.started"
    bundle: Digest
    """Digest of the frozen bundle (over its manifest)."""
    manifest: dict[str, Digest]
    """File name -> digest; each is a blob."""
    operator: str | None = None
    """Registered operator, if the bundle was made from one."""
    dtype: str | None = None
    """Of inputs and outputs, when an operator made the bundle."""
    shape: dict[str, int] = Field(default_factory=dict)
    """The operator's symbols and sizes."""
    device: Literal["cpu", "cuda"]
    """Where kernels run."""
    device_label: str
    """`cpu-interpreter`, or the GPU's name."""
    engine: Literal["docker", "bwrap", "fake"]
    """Sandbox engine; `fake` marks a run in which nothing was measured."""
    settings: dict[str, Any]
    """The resolved run settings: strategy, seed, budgets, thresholds. Decisions read only these."""
    environment: dict[str, Any]
    """Image digest and manifest, sandbox description, host facts, program version."""
    decision_code: Digest
    """Digest of the pure decision code; a replay names it when it differs."""
    live_kernel: str | None = None
    """Path of the kernel file that the user owns, for display."""


class BaselineMeasured(Frozen):
    kind: Literal["baseline.measured"] = "baseline.measured"
    index: int
    """A/A pair number, from 0."""
    pair: Pair
    """Two arms, `baseline` and `baseline-b`, of the same source: an A/A pair. Before any candidate existed."""


class BaselineCalibrated(Frozen):
    kind: Literal["baseline.calibrated"] = "baseline.calibrated"
    aa_halfwidth: Finite
    """Half-width of the A/A interval, log ratio; it widens every interval of this grade."""
    median_us: dict[str, Finite]
    """Per case, median over processes, microseconds."""
    numbers: dict[str, Any] = Field(default_factory=dict)
    """What `ops.decide.calibrate` derived from the A/A pairs; later decisions read it."""


class BaselineRefused(Frozen):
    kind: Literal["baseline.refused"] = "baseline.refused"
    reason: str
    """The bundle's own baseline is wrong, crashes or is too unstable: no search can start."""
    detail: str = ""
    """For people."""


class CandidateProposed(Frozen):
    kind: Literal["candidate.proposed"] = "candidate.proposed"
    candidate: Name
    """`c001`, `c002`, ... in order of proposal."""
    source: Digest
    """Blob of the complete kernel source."""
    normal: Digest
    """Digest of the source's normal form (for the duplicate test)."""
    provider: str
    """Who proposed: `grid`, `best_of_n`, `command`, `mock`."""
    hypothesis: str = ""
    """The proposer's own words, as are the next four; claims."""
    evidence: str = ""
    """What the hypothesis rests on."""
    change: str = ""
    """What was changed."""
    expected_effect: str = ""
    """What should follow."""
    risk: str = ""
    """What may go wrong."""
    knobs: dict[str, Any] = Field(default_factory=dict)
    """Template and search knobs, when it came from an operator's search space."""
    prompt: Digest | None = None
    """Blob of what a command provider was asked."""
    reply: Digest | None = None
    """Blob of what it answered, byte for byte."""


class ProposalFailed(Frozen):
    kind: Literal["proposal.failed"] = "proposal.failed"
    index: int
    """Which proposal, counting from 1."""
    provider: str
    """Who failed to propose."""
    reason: str
    """One of `ops.decide.reasons`."""
    detail: str = ""
    """For people."""
    prompt: Digest | None = None
    """Blob of what it was asked."""
    reply: Digest | None = None
    """Blob of what it answered."""


class ProposalsEnded(Frozen):
    kind: Literal["proposals.ended"] = "proposals.ended"
    reason: Literal["budget", "exhausted", "time"]
    """Candidate budget spent, provider out of ideas, or working time over."""


class CandidateBuilt(Frozen):
    kind: Literal["candidate.built"] = "candidate.built"
    candidate: Name
    """Its id."""
    claim: dict[str, Any]
    """What the build container said (jit functions, and `compile`: state, and registers, shared memory and spills of each kernel).
    A claim: a lie here only fails later."""
    outcome: dict[str, Any]
    """How the build container ended, as seen from outside."""
    log: Digest | None = None
    """Blob of what it printed."""


class CandidateVerified(Frozen):
    kind: Literal["candidate.verified"] = "candidate.verified"
    candidate: Name
    """Its id."""
    right: int
    """Calls whose output was right."""
    calls: int
    """Over all cases: `right` of `calls` outputs were right. Each was also timed; each later timed call is also checked."""


class CandidateMeasured(Frozen):
    kind: Literal["candidate.measured"] = "candidate.measured"
    candidate: Name
    """Its id."""
    index: int
    """Fresh pair number, from 0."""
    incumbent: str
    """`baseline`, or the candidate that held the best place when this was measured."""
    pair: Pair
    """Baseline, incumbent (when it is another) and candidate, measured side by side."""


class CandidateJudged(Frozen):
    kind: Literal["candidate.judged"] = "candidate.judged"
    candidate: Name
    """Its id."""
    verdict: Literal["promote", "reject", "ambiguous"]
    """`ambiguous` is never promoted."""
    reason: str
    """One of `ops.decide.reasons`."""
    detail: str = ""
    """For people."""
    numbers: dict[str, Any] = Field(default_factory=dict)
    """Estimate, interval, pairs, per-case ratios: all re-derivable from the measured events."""


class CandidateRejected(Frozen):
    kind: Literal["candidate.rejected"] = "candidate.rejected"
    candidate: Name
    """Its id."""
    reason: str
    """One of `ops.decide.reasons`."""
    detail: str = ""
    """For people."""


class CandidatePromoted(Frozen):
    kind: Literal["candidate.promoted"] = "candidate.promoted"
    candidate: Name
    """Its id; the incumbent from now on."""
    over: str
    """Whom it replaced: `baseline` or a candidate."""
    speedup: Finite
    """Over the baseline: point estimate, weighted geometric mean over cases."""
    lower: Finite
    """Lower confidence bound of the speed-up over the baseline, widened and corrected."""


class FinalistMeasured(Frozen):
    kind: Literal["finalist.measured"] = "finalist.measured"
    candidate: Name
    """Its id."""
    index: int
    """Pair number of the revalidation, from 0."""
    pair: Pair
    """Rebuilt, fresh processes, fresh secret, hidden input families."""


class FinalistRevalidated(Frozen):
    kind: Literal["finalist.revalidated"] = "finalist.revalidated"
    candidate: Name
    """Its id."""
    passed: bool
    """Whether it is the validated winner."""
    reason: str
    """One of `ops.decide.reasons`."""
    detail: str = ""
    """For people."""
    numbers: dict[str, Any] = Field(default_factory=dict)
    """As of a judged candidate."""


class Faulted(Frozen):
    kind: Literal["faulted"] = "faulted"
    stage: str
    """The stage of the episode whose step failed."""
    detail: str
    """For people."""
    attempt: int
    """A fault is about us: retried at most twice, never held against a candidate, never a promotion."""


class EpisodeResumed(Frozen):
    kind: Literal["episode.resumed"] = "episode.resumed"
    environment: dict[str, Any] = Field(default_factory=dict)
    """As of the start, on the machine that goes on."""


class EpisodeFinished(Frozen):
    kind: Literal["episode.finished"] = "episode.finished"
    outcome: Literal["winner", "no-winner", "fault", "refused"]
    """`refused`: the baseline could not be compared with; `fault`: our failures, no verdict."""
    winner: str | None = None
    """Candidate id of the revalidated winner."""
    winner_source: Digest | None = None
    """Blob of its complete source."""
    speedup: Finite | None = None
    """Of the revalidation, over the baseline."""
    lower: Finite | None = None
    """Its lower confidence bound."""
    stopping_reason: str = ""
    """One of `ops.decide.reasons`."""


Fact = Annotated[
    EpisodeStarted
    | BaselineMeasured
    | BaselineCalibrated
    | BaselineRefused
    | CandidateProposed
    | ProposalFailed
    | ProposalsEnded
    | CandidateBuilt
    | CandidateVerified
    | CandidateMeasured
    | CandidateJudged
    | CandidateRejected
    | CandidatePromoted
    | FinalistMeasured
    | FinalistRevalidated
    | Faulted
    | EpisodeResumed
    | EpisodeFinished,
    Field(discriminator="kind"),
]

FACT: TypeAdapter[Fact] = TypeAdapter(Fact)
"""Parses stored bytes back into facts."""
