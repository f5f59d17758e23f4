"""The whole story of an episode, on one screen: the table of contents of this program.

An episode is a fold over its events. Its stage says which step comes next; a step works, and returns facts; the facts
are appended at exactly the version that was folded; and so on until nothing is left to do. There is no other state: a
run that was killed anywhere begins again at the last event, and repeats only what no event tells of.
"""

from __future__ import annotations

from eventstore.facts import Fact
from replay.fold import State
from runner import steps
from runner.context import Context
from sandbox.api import SandboxFault


def run(ctx: Context, state: State) -> State:
    """Work on the episode until it is done. Raises eventstore's errors; KeyboardInterrupt leaves it resumable."""
    while state.stage != "done":
        try:
            facts = advance(ctx, state)
        except SandboxFault as fault:  # ours: never a verdict
            facts = steps.fault(state, fault)
        state = ctx.append(state, facts)
    return state


def advance(ctx: Context, state: State) -> list[Fact]:
    """The one step that is next."""
    facts: list[Fact] = []
    match state.stage:
        case "start":
            facts = steps.start(ctx)
        case "baseline":
            facts = steps.baseline(ctx, state)
        case "propose":
            facts = steps.propose(ctx, state)
        case "build":
            facts = steps.build(ctx, state)
        case "measure":
            facts = steps.measure(ctx, state)
        case "judge" | "settle" | "finish":
            facts = steps.decided(state)
        case "finalist":
            facts = steps.finalist(ctx, state)
    return facts
