"""The steps of an episode, one function each: state in, facts out. Appending is the pipeline's.

Everything that a step decides with is in the state or in the recorded settings; everything it measures goes into its
facts. A step that raises SandboxFault has none: our failure is recorded by `fault`, and the same step is tried again.
"""

from __future__ import annotations

from eventstore import facts
from eventstore.facts import Fact, Pair
from replay.decisions import decision
from replay.fold import CandidateState, State
from runner import customs
from runner.bundle import BundleError
from runner.context import Context
from runner.lab import Arm, Built, PairPlan
from runner.providers import Past, Proposal, ProposalError, Question
from sandbox.api import SandboxFault

MAX_DETAIL = 2000


def start(ctx: Context) -> list[Fact]:
    """The frozen bundle becomes blobs; then the first event names them, the settings and the environment."""
    if ctx.opening is None:
        raise ValueError("an episode begins with its opening event")
    for body in ctx.bundle.files.values():
        ctx.log.blobs.put(body)
    return [ctx.opening]


def baseline(ctx: Context, state: State) -> list[Fact]:
    """The baseline against itself, pair after pair; then the A/A spread that every later comparison must exceed."""
    if state.aa_complete:
        return decided(state)
    done = len(state.aa_pairs)
    if done == 0:
        built = ctx.lab.build(ctx.bundle, ctx.bundle.kernel, ctx.unit(state, "base"))
        if not built.ok:
            return [facts.BaselineRefused(reason="baseline-crashed", detail=f"{built.reason}: {_why(built)}")]
    arms = (Arm("baseline", ctx.bundle.kernel), Arm("baseline-b", ctx.bundle.kernel))
    try:
        pair = ctx.lab.pair(ctx.bundle, _plan(ctx, state, f"aa{done}", arms))
    except BundleError as error:  # its task.py raises or answers nonsense
        return [facts.BaselineRefused(reason="task-error", detail=_detail(str(error)))]
    return [facts.BaselineMeasured(index=done, pair=pair)]


def propose(ctx: Context, state: State) -> list[Fact]:
    """Ask for the next candidate; what is no new one is rejected in the same breath."""
    if state.proposals >= ctx.settings.max_candidates:
        return [facts.ProposalsEnded(reason="budget")]
    if ctx.spent_s() >= ctx.settings.max_total_seconds:
        return [facts.ProposalsEnded(reason="time")]
    question = _question(ctx, state)
    try:
        proposal = ctx.provider.propose(question)
    except ProposalError as error:
        return [_failure(ctx, question.index, error)]
    if proposal is None:
        return [facts.ProposalsEnded(reason="exhausted")]
    return _proposed(ctx, state, proposal)


def build(ctx: Context, state: State) -> list[Fact]:
    """See in a container of its own whether the source can be imported at all."""
    candidate = _current(state)
    built = ctx.lab.build(ctx.bundle, _source(ctx, candidate), ctx.unit(state, f"{candidate.id}-build"))
    if not built.ok:
        return [facts.CandidateRejected(candidate=candidate.id, reason=built.reason, detail=_why(built))]
    log = ctx.log.blobs.put(built.log) if built.log else None
    return [facts.CandidateBuilt(candidate=candidate.id, claim=built.claim, outcome=built.outcome, log=log)]


def measure(ctx: Context, state: State) -> list[Fact]:
    """One fresh pair beside the baseline and the incumbent. The first also says how many outputs were right."""
    candidate = _current(state)
    index = len(candidate.pairs)
    plan = _plan(ctx, state, f"{candidate.id}-p{index}", _arms(ctx, state, candidate), ctx.settings.families)
    pair = ctx.lab.pair(ctx.bundle, plan)
    measured = facts.CandidateMeasured(candidate=candidate.id, index=index, incumbent=state.incumbent, pair=pair)
    return [_verified(candidate.id, pair), measured] if index == 0 else [measured]


def decided(state: State) -> list[Fact]:
    """What follows from the recorded numbers alone; a replay derives it again by the same function."""
    fact = decision(state)
    if fact is None:
        raise ValueError(f"nothing to decide at stage {state.stage}")
    return [fact]


def finalist(ctx: Context, state: State) -> list[Fact]:
    """The best candidate, rebuilt, in fresh processes, on a fresh secret and on hidden inputs: does it still hold?"""
    candidate = state.candidates[state.incumbent]
    source = _source(ctx, candidate)
    pairs = state.finalist_pairs.get(candidate.id, ())
    if len(pairs) < ctx.settings.finalist_pairs:
        if not pairs:
            built = ctx.lab.build(ctx.bundle, source, ctx.unit(state, f"{candidate.id}-rebuild"))
            if not built.ok:
                return [_lost(candidate.id, built)]
        arms = (Arm("baseline", ctx.bundle.kernel), Arm("candidate", source))
        plan = _plan(ctx, state, f"{candidate.id}-f{len(pairs)}", arms, ctx.settings.families)
        return [facts.FinalistMeasured(candidate=candidate.id, index=len(pairs), pair=ctx.lab.pair(ctx.bundle, plan))]
    return decided(state)


def fault(state: State, error: SandboxFault) -> list[Fact]:
    """Our own failure: recorded, and the step tried again; the third in a row ends the episode. Never a verdict."""
    attempt = len(state.recent_faults) + 1
    return [facts.Faulted(stage=state.stage, detail=_detail(str(error)), attempt=attempt)]


def _proposed(ctx: Context, state: State, proposal: Proposal) -> list[Fact]:
    name = f"c{len(state.candidates) + 1:03d}"
    put = ctx.log.blobs.put
    told = {key: proposal.story.get(key, "") for key in customs.STORY}
    fact = facts.CandidateProposed(
        candidate=name,
        source=put(proposal.source),
        normal=customs.normal_digest(proposal.source),
        provider=ctx.provider.name,
        knobs=proposal.knobs,
        prompt=put(proposal.prompt) if proposal.prompt is not None else None,
        reply=put(proposal.reply) if proposal.reply is not None else None,
    ).model_copy(update=told)
    refusal = _refusal(ctx, state, fact, proposal.source)
    return [fact, refusal] if refusal else [fact]


def _refusal(ctx: Context, state: State, fact: facts.CandidateProposed, source: bytes) -> Fact | None:
    """Why a proposal is not worth a container."""
    if len(source) > customs.MAX_SOURCE_BYTES:
        detail = f"{len(source)} bytes, at most {customs.MAX_SOURCE_BYTES}"
        return facts.CandidateRejected(candidate=fact.candidate, reason="too-large", detail=detail)
    known = {customs.normal_digest(ctx.bundle.kernel): "the baseline"}
    known |= {other.proposed.normal: other.id for other in state.candidates.values()}
    if fact.normal in known:
        detail = f"the same tokens as {known[fact.normal]}"
        return facts.CandidateRejected(candidate=fact.candidate, reason="duplicate", detail=detail)
    return None


def _failure(ctx: Context, index: int, error: ProposalError) -> Fact:
    put = ctx.log.blobs.put
    return facts.ProposalFailed(
        index=index,
        provider=ctx.provider.name,
        reason=error.reason,
        detail=_detail(error.detail),
        prompt=put(error.prompt) if error.prompt is not None else None,
        reply=put(error.reply) if error.reply is not None else None,
    )


def _question(ctx: Context, state: State) -> Question:
    best = state.incumbent
    return Question(
        index=state.proposals + 1,
        bundle=ctx.bundle,
        best=ctx.bundle.kernel if best == "baseline" else _source(ctx, state.candidates[best]),
        best_name=best,
        history=(*map(_past, state.candidates.values()), *map(_failed, state.failures)),
        baseline_us=dict(state.calibration.median_us) if state.calibration else {},
    )


def _past(candidate: CandidateState) -> Past:
    judged, rejected = candidate.judged, candidate.rejected
    verdict = "promoted" if candidate.promoted else "rejected"
    if judged is not None and judged.verdict == "ambiguous":
        verdict = "ambiguous"
    reason = rejected.reason if rejected else judged.reason if judged else ""
    detail = rejected.detail if rejected else judged.detail if judged else ""
    story = {key: getattr(candidate.proposed, key) for key in customs.STORY}
    return Past(candidate.id, verdict, reason, detail, story, dict(judged.numbers) if judged else {})


def _failed(failure: facts.ProposalFailed) -> Past:
    return Past(f"proposal {failure.index}", "failed", failure.reason, failure.detail)


def _arms(ctx: Context, state: State, candidate: CandidateState) -> tuple[Arm, ...]:
    """The baseline first, the newcomer last, the incumbent between them where it is another than the baseline."""
    between: tuple[Arm, ...] = ()
    if state.incumbent != "baseline":
        between = (Arm("incumbent", _source(ctx, state.candidates[state.incumbent])),)
    return (Arm("baseline", ctx.bundle.kernel), *between, Arm("candidate", _source(ctx, candidate)))


def _plan(ctx: Context, state: State, label: str, arms: tuple[Arm, ...], families: tuple[str, ...] = ()) -> PairPlan:
    unit, settings = ctx.unit(state, label), ctx.settings
    return PairPlan(
        unit=unit,
        arms=arms,
        order_seed=ctx.order_seed(unit),
        verify_calls=settings.verify_calls,
        alone_calls=settings.alone_calls,
        blocks=settings.blocks,
        calls=settings.calls,
        families=families,
        call_timeout_s=settings.call_timeout_s,
    )


def _verified(candidate: str, pair: Pair) -> Fact:
    answers = [why for one in pair.series if one.arm == "candidate" for why in one.why]
    return facts.CandidateVerified(candidate=candidate, right=answers.count(""), calls=len(answers))


def _lost(candidate: str, built: Built) -> Fact:
    """A finalist that cannot even be built again."""
    return facts.FinalistRevalidated(candidate=candidate, passed=False, reason=built.reason, detail=_why(built))


def _why(built: Built) -> str:
    """The build's own words, and how its container ended."""
    seen = " ".join(f"{key}={built.outcome[key]}" for key in ("status", "exit_code", "signal") if key in built.outcome)
    return _detail(f"{built.detail} ({seen})" if seen else built.detail)


def _current(state: State) -> CandidateState:
    assert state.current is not None
    return state.current


def _source(ctx: Context, candidate: CandidateState) -> bytes:
    return ctx.log.blobs.get(candidate.proposed.source)


def _detail(text: str) -> str:
    return customs.one_line(text, MAX_DETAIL)
