"""One measurement unit with real containers: a judge, one fresh guest per arm, interleaved blocks, then nothing left.

The order of a unit is the argument for its honesty, so it reads as one list (`Unit.run`): blank guests start, the baseline is
measured alone while the newcomer's source does not exist inside any container, then the source is released, checked, timed in
randomised blocks with every other arm frozen, destroyed, and the baseline is measured alone again.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from eventstore.facts import Pair, Series
from ops import wire
from runner import devices
from runner.blank import START_S, Blank
from runner.bundle import FLAT, Bundle, BundleError, check_intact, project, write
from runner.lab import PairPlan
from runner.warm import Pool
from runner.workspace import release
from sandbox.api import Running, SandboxFault
from sandbox.collect import CollectError, collect

LOAD_S = 60.0
NEWCOMER_S = 400.0
"""An arm other than the baseline may use the judge for so long in one unit: no candidate outlives the unit's own limit."""
EXTRA_VERIFY = 3
"""Up to so many verification calls more, at random: their number tells a guest nothing."""
LOST = ("guest-died", "timeout", "protocol", "not-frozen", "starved")
"""After one of these the guest is never asked again."""
SEEN_DEAD_S = 3.0


class GuestFailed(Exception):
    """The newcomer failed before it could be timed; what was measured so far is still returned."""


@dataclass
class Unit:
    """State of one unit while it runs."""

    pool: Pool
    bundle: Bundle
    plan: PairPlan
    stack: ExitStack
    guests: dict[str, Blank] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    running: dict[str, Running] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=list)
    out: set[str] = field(default_factory=set)
    """Incumbents that failed in this unit: destroyed, and left out from then on."""
    spent: dict[str, float] = field(default_factory=dict)
    decks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Arm and case -> hidden families still to come, shuffled; all of them come before any comes again."""

    def run(self) -> Pair:
        plan, newcomer = self.plan, self.plan.arms[-1].name
        established = [arm.name for arm in plan.arms[:-1]]
        self._take()
        self._open()
        for arm in [*established, newcomer]:
            self._attach(arm)
        self._freeze_all()
        try:
            for arm in established:
                self._admit(arm)
            self._alone(block=-2)
            self._admit(newcomer)
            self._blocks()
        except GuestFailed:
            pass
        self._destroy(newcomer)
        if not self._failed(established[0]):
            self._alone(block=-3)
        for arm in established:
            self._destroy(arm)
        closed = self._ask({"op": "close"}, 10.0)
        intact = check_intact(self.bundle, self.judge.place) and self._sources_intact()
        self.outcomes["judge"] = dict(self.running["judge"].kill().evidence())
        return Pair(
            unit=plan.unit,
            grade="bracket",
            series=tuple(self.series),
            secret=closed["secret"],
            claims=self.claims,
            outcomes=self.outcomes,
            device={"states": self.states, "tax_ns": self.tax_ns, "warm": self.warm},
            bundle_intact=intact,
        )

    # setup ----------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Judge and blank guests, side by side: those that are not warm yet import torch at the same time."""
        self.judge = self._one("judge", self.pool.take("judge", self.bundle.digest))
        for arm in self.plan.arms:
            self.guests[arm.name] = self._one(arm.name, self.pool.take("guest", self.bundle.digest))
        self.warm = {name: blank.warm for name, blank in [("judge", self.judge), *self.guests.items()]}
        self.stack.enter_context(self.pool.still())

    def _one(self, name: str, blank: Blank) -> Blank:
        self.stack.enter_context(blank)
        self.running[name] = blank.running
        return blank

    def _open(self) -> None:
        """The judge gets the frozen bundle, and nobody else."""
        write(self.bundle, self.judge.place)
        self.control = self.judge.ready()
        opened = self._ask({"op": "open", "spin": self.pool.jobs.device == "cuda"}, START_S)
        if "families" not in opened:
            raise SandboxFault(f"judge: open: {opened}")
        wanted = self.plan.families
        self.families = {
            case: [name for name in names if "*" in wanted or name in wanted]
            for case, names in opened["families"].items()
        }
        self.tax_ns = opened["tax_ns"]
        self.claims["judge"] = {k: opened[k] for k in ("python", "torch")}

    def _attach(self, arm: str) -> None:
        """Hand a blank guest's only connection to the judge. Its source does not exist yet: what fails here is our failure."""
        guest = self.guests[arm]
        project(self.bundle, guest.place)
        with guest.ready() as sock:
            answer = self._ask({"op": "attach", "arm": arm, "timeout_s": START_S}, START_S + 5, (sock.fileno(),))
        if "hello" not in answer:
            ended = self.running[arm].kill()
            raise SandboxFault(f"guest {arm} did not answer: {answer} {ended.status} {ended.stderr.text()[-500:]}")
        self.claims[arm] = {"hello": answer["hello"]}

    def _freeze_all(self) -> None:
        for name, running in self.running.items():
            if name != "judge":
                running.freeze()

    # measuring ------------------------------------------------------------------------------------------------------

    def _admit(self, arm: str) -> None:
        """Release the arm's source, load it, verify it on every case and hidden family."""
        source = next(a.source for a in self.plan.arms if a.name == arm)
        release(source, self.guests[arm].place)
        with self._awake(arm):
            order = {"op": "load", "arm": arm, "entry": self.bundle.entry, "timeout_s": LOAD_S}
            answer = self._ask(order, LOAD_S + 5)
            self.claims[arm]["load"] = answer.get("claim", {})
            if answer.get("claim") != {"ok": True}:
                why = {"timeout": "timeout", "guest-died": "guest-died"}.get(
                    answer.get("guest_error", ""), "guest-error"
                )
                self._record(arm, self.bundle.cases[0].case_id, -1, [{"ns": 0, "why": why, "worst": None}])
                return self._give_up(arm)
            cases = list(self.bundle.cases)
            secrets.SystemRandom().shuffle(cases)  # as in the blocks: the order of sizes tells no phase
            for case in cases:
                self._calls(arm, case.case_id, -1, self.plan.verify_calls + secrets.randbelow(EXTRA_VERIFY))
        if self._failed(arm):
            self._give_up(arm)
        return None

    def _give_up(self, arm: str) -> None:
        """An incumbent that fails forfeits and the unit goes on without it; without baseline or newcomer nothing is left to do."""
        if arm in (self.plan.arms[0].name, self.plan.arms[-1].name):
            raise GuestFailed
        self.out.add(arm)
        self._destroy(arm)

    def _alone(self, block: int) -> None:
        baseline = self.plan.arms[0].name
        with self._awake(baseline):
            for case in self.bundle.cases:
                self._series(baseline, case.case_id, block, [""] * self.plan.alone_calls)

    def _blocks(self) -> None:
        """Interleaved rounds; the order of arms and cases is random but re-derivable from the plan."""
        order = random.Random(self.plan.order_seed)
        for block in range(self.plan.blocks):
            arms = [arm.name for arm in self.plan.arms if arm.name not in self.out]
            cases = [case.case_id for case in self.bundle.cases]
            order.shuffle(arms)
            order.shuffle(cases)
            for arm in arms:
                with self._awake(arm):
                    for case in cases:
                        self._calls(arm, case, block, self.plan.calls)
                if self._failed(arm) and arm not in self.out:
                    self._give_up(arm)
            self.states.append({"block": block, **devices.state(self.pool.jobs.gpu)})

    @contextmanager
    def _awake(self, arm: str) -> Iterator[None]:
        """Only this arm runs; all others are frozen."""
        running = self.running[arm]
        running.thaw()
        try:
            yield
        finally:
            if running.poll() is None and not self._failed(arm):
                self._freeze(arm)

    def _freeze(self, arm: str) -> None:
        """A candidate that cannot be stopped (it forks as fast as the freezer works, say) has failed: nobody else can be timed
        beside it. A baseline, or a guest without a source, that cannot be stopped is our failure."""
        try:
            self.running[arm].freeze()
        except SandboxFault:
            if arm == self.plan.arms[0].name or "load" not in self.claims[arm]:
                raise
            self._blame(arm, "not-frozen")
            self._give_up(arm)

    def _blame(self, arm: str, why: str) -> None:
        """A failure outside any call."""
        self._record(arm, self.bundle.cases[0].case_id, -1, [{"ns": 0, "why": why, "worst": None}])

    def _calls(self, arm: str, case: str, block: int, calls: int) -> None:
        """So many calls on the task's own inputs, and at a random place among them one on a hidden family, in one order to the
        judge: neither count nor order nor a pause tells a guest which call is which."""
        if not self.families[case]:
            return self._series(arm, case, block, [""] * calls)
        before = secrets.randbelow(calls + 1)
        deck = self.decks.setdefault((arm, case), [])
        if not deck:
            deck.extend(self.families[case])
            secrets.SystemRandom().shuffle(deck)
        return self._series(arm, case, block, [""] * before + [deck.pop()] + [""] * (calls - before))

    def _series(self, arm: str, case: str, block: int, families: list[str]) -> None:
        timeout, longest = self.plan.call_timeout_s, len(families) * (2 * self.plan.call_timeout_s + 30.0)
        left = longest
        if arm != self.plan.arms[0].name:
            left = min(longest, NEWCOMER_S - self.spent.get(arm, 0.0))
            if left <= 0:
                return self._blame(arm, "timeout")
        order = {"op": "series", "arm": arm, "case": case, "families": families, "timeout_s": timeout, "left_s": left}
        started = time.monotonic()
        answer = self._ask(order, longest)
        self.spent[arm] = self.spent.get(arm, 0.0) + time.monotonic() - started
        if "starved" in answer:
            return self._starved(answer["starved"])
        asked = zip(families, answer["samples"], strict=False)
        for family, pairs in groupby(asked, key=lambda one: one[0]):
            self._record(arm, case, block, [sample for _, sample in pairs], family)
        wrong = [s for s in answer["samples"] if s["why"]]
        if wrong and wrong[0].get("detail"):
            self.claims[arm]["detail"] = wrong[0]["detail"]
        return None

    def _starved(self, detail: str) -> None:
        """The judge could not get memory for a call. While a candidate lives it is the one who holds it; before, we are."""
        newcomer = self.plan.arms[-1].name
        if "load" not in self.claims[newcomer] or newcomer in self.outcomes:
            raise SandboxFault(f"judge: {detail}")
        self.claims[newcomer]["detail"] = detail
        self._blame(newcomer, "starved")
        raise GuestFailed

    def _record(self, arm: str, case: str, block: int, samples: list[dict[str, Any]], family: str = "") -> None:
        self.series.append(
            Series(
                arm=arm,
                case=case,
                block=block,
                ns=tuple(s["ns"] for s in samples),
                why=tuple(s["why"] for s in samples),
                worst=tuple(s["worst"] for s in samples),
                family=family,
            )
        )

    def _failed(self, arm: str) -> bool:
        """Wrong where it counts. A wrong unprotected case only drops out of the comparison; and hidden families judge the newcomer,
        not the arm that it is compared with (a baseline may overflow where a better kernel does not)."""
        newcomer = self.plan.arms[-1].name
        return any(
            why
            for s in self.series
            if s.arm == arm
            for why in s.why
            if why in LOST or (s.case in self.bundle.protected and (arm == newcomer or not s.family))
        )

    # ending ---------------------------------------------------------------------------------------------------------

    def _destroy(self, arm: str) -> None:
        """End it and keep how it ended. One that died by itself is given a moment to be seen dead: an exit code, a signal or
        an out-of-memory count says more than "we killed it"."""
        running = self.running[arm]
        if any(why == "guest-died" for s in self.series if s.arm == arm for why in s.why):
            running.thaw()
            deadline = time.monotonic() + SEEN_DEAD_S
            while running.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
        self.outcomes[arm] = dict(self.running[arm].kill().evidence())

    def _sources_intact(self) -> bool:
        """No guest changed what it was given (its folder is mounted read-only; this looks, it does not assume)."""
        for arm in self.plan.arms:
            try:
                held = collect(self.guests[arm.name].place, FLAT)
            except CollectError:
                return False
            if held.pop("kernel.py", arm.source) != arm.source or set(held) != {"cases.json", "target.json"}:
                return False
        return True

    def _ask(self, order: dict[str, Any], timeout_s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """One operation of the judge. Whatever goes wrong with the judge is our fault."""
        self.control.settimeout(timeout_s)
        try:
            wire.send(self.control, order, fds)
            answer, _ = wire.receive(self.control)
        except (wire.WireError, TimeoutError) as error:
            self._judge_alive()
            raise SandboxFault(f"judge: {order['op']}: {error}") from None
        if "task_error" in answer:
            if order["op"] == "open":  # nobody's source is in any container yet: nobody else can have caused it
                raise BundleError(str(answer["task_error"]))
            raise SandboxFault(f"judge: {answer['task_error']}")
        return answer

    def _judge_alive(self) -> None:
        ended = self.running["judge"].poll()
        if ended is not None:
            raise SandboxFault(f"the judge ended ({ended.status} {ended.exit_code}): {ended.stderr.text()[-1500:]}")
