"""One row of the table, run: the hostile program in its container, a look at what is left, and an honest program right after."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from images.api import Image
from runner.check import watch
from runner.check.judging import Witness, Word
from runner.check.platform import Fault
from runner.check.stage import Stage, digest
from runner.check.table import LIMITS, Row
from runner.workspace import workspace
from sandbox.api import Job, Limits, Mount, Outcome, Sandbox, SandboxFault
from sandbox.status import classify

PROGRAMS = Path(__file__).parent / "programs"
KNOWN = "9c8bc5c4bb7122b53191a712858efe7ddf2847a9a22d462510f8c5b03178ca95"
"""What `programs/good.py` prints."""
GRACE_S = 3.0
"""From a program's deadline to its end."""
LINKED = ("link", "trap", "unread link")
RETURN_S = 30.0
"""From its deadline to our being back, with the container started before and removed after."""


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    name: str
    case: str
    tries: str
    expected: tuple[str, ...]
    verdict: Literal["ok", "NO", "not run"]
    observed: str = ""
    evidence: str = ""
    problems: tuple[str, ...] = ()
    """What is not as it must be; of a row that was not run, why."""
    seconds: float = 0.0
    control_s: float | None = None
    """Wall time of the honest program that ran right after."""
    facts: dict[str, Any] = field(default_factory=dict)


def not_run(row: Row | Fault, why: str) -> Result:
    return Result(row.name, row.case, row.tries, tuple(sorted(row.expected)), "not run", problems=(why,))


@dataclass(frozen=True)
class Bench:
    """One engine and one image."""

    sandbox: Sandbox
    image: Image

    def attempt(self, row: Row) -> Result:
        """Run one row and all that belongs to it. Whatever fails is said in the result; nothing is raised for it."""
        if row.needs:
            return not_run(row, row.needs)
        began = time.monotonic()
        mark = f"assay-check-{uuid4().hex[:12]}"
        before, peak = watch.figures(), _peak()
        problems: list[str] = []
        with workspace() as folder, Stage(folder) as stage:
            limits = Limits(**{**LIMITS, **row.limits})
            ended, heard, link_s = self._run(self._job(row, mark, stage, limits), row, stage, f"{mark}-beside")
            if isinstance(ended, SandboxFault):
                word = Word(str(ended)[:300])
            else:
                witness = Witness(
                    *(ended, limits, stage.canary, mark, tuple(heard), link_s, _peak() - peak, f"{mark}-beside")
                )
                word = row.judge(witness)
                problems += [word.problem] if word.problem else []
                problems += _late(ended, limits, time.monotonic() - began)
                problems += _told(ended, stage.canary)
            problems += _changed(stage)
        observed = classify(ended, replace(word.seen, phase="run" if row.role == "guest" else "build"))
        if observed not in row.expected:
            problems.insert(0, f"{observed}, not {' or '.join(sorted(row.expected))}")
        problems += self._left(mark, ended, before)
        control_s, bad = self.control(mark)
        problems += bad
        return Result(
            name=row.name,
            case=row.case,
            tries=row.tries,
            expected=tuple(sorted(row.expected)),
            verdict="NO" if problems else "ok",
            observed=observed,
            evidence=word.evidence,
            problems=tuple(problems),
            seconds=time.monotonic() - began,
            control_s=control_s,
            facts={} if isinstance(ended, SandboxFault) else ended.evidence(),
        )

    def provoke(self, fault: Fault) -> Result:
        """Provoke one fault of the platform; otherwise as `attempt`."""
        if fault.action is None or fault.absent(self.sandbox.name):
            return not_run(fault, fault.absent(self.sandbox.name))
        began, before = time.monotonic(), watch.figures()
        mark = f"assay-check-{uuid4().hex[:12]}"
        with workspace() as folder:
            try:
                observed, evidence = fault.action(self, mark, folder)
            except (SandboxFault, OSError, subprocess.SubprocessError) as error:
                observed, evidence = "not provoked", str(error)[:300]
        problems = (
            [] if observed in fault.expected else [f"{observed}, not {' or '.join(sorted(fault.expected))}: {evidence}"]
        )
        problems += [f"left: {what}" for what in watch.leftovers(mark)] + watch.taken(before)
        control_s, bad = self.control(mark)
        problems += bad
        return Result(
            name=fault.name,
            case=fault.case,
            tries=fault.tries,
            expected=tuple(sorted(fault.expected)),
            verdict="NO" if problems else "ok",
            observed=observed,
            evidence=evidence,
            problems=tuple(problems),
            seconds=time.monotonic() - began,
            control_s=control_s,
        )

    def control(self, mark: str) -> tuple[float | None, list[str]]:
        """The honest program: its wall time, and what is wrong with its answer."""
        job = Job(
            f"{mark}-good", "guest", ("-I", "/hostile/good.py", mark), self.image, mounts=(Mount(PROGRAMS, "/hostile"),)
        )
        try:
            done = self.sandbox.run(job)
        except SandboxFault as fault:
            return None, [f"an honest program could not run after it: {fault}"[:300]]
        right = (done.status, done.exit_code, done.stdout.head.strip().decode(errors="replace")) == ("exited", 0, KNOWN)
        said = (done.stdout.text() + done.stderr.text())[:200]
        return done.wall_s, [] if right else [
            f"an honest program failed after it: {done.status} {done.exit_code} {said!r}"
        ]

    def _job(self, row: Row, mark: str, stage: Stage, limits: Limits) -> Job:
        arguments = {
            "listener": (str(stage.listener.port), stage.listener.name),
            "secret": (str(stage.secret), "/bundle/kernel.py"),
            "trap": (str(stage.trap),),
        }.get(row.besides, ())
        return Job(
            name=mark,
            role=row.role,
            argv=("-I", f"/hostile/{row.name.replace('-', '_')}.py", mark, *arguments),
            image=self.image,
            mounts=(Mount(PROGRAMS, "/hostile"), Mount(stage.bundle, "/bundle"), Mount(stage.link, "/link")),
            limits=limits,
        )

    def _run(self, job: Job, row: Row, stage: Stage, beside: str) -> tuple[Outcome | SandboxFault, list[str], float]:
        """How it ended, what its link carried, and for how long that kept us."""
        heard: list[str] = []
        link_s = 0.0
        try:
            with ExitStack() as stack:
                if row.besides == "neighbour":
                    stack.enter_context(self._neighbour(beside))
                running = stack.enter_context(self.sandbox.start(job))
                if row.besides in LINKED:
                    began = time.monotonic()
                    heard = stage.offer() if row.besides == "unread link" else stage.hear()
                    link_s = time.monotonic() - began
                return running.wait(job.limits.wall_s), heard, link_s
        except SandboxFault as fault:
            return fault, heard, link_s

    @contextmanager
    def _neighbour(self, name: str) -> Iterator[None]:
        job = Job(name, "guest", ("-I", "/hostile/sleeper.py", name), self.image, mounts=(Mount(PROGRAMS, "/hostile"),))
        with self.sandbox.start(job) as running:
            yield
            running.kill()

    def _left(self, mark: str, ended: Outcome | SandboxFault, before: watch.Figures) -> list[str]:
        container = ended.container if isinstance(ended, Outcome) else ""
        return [f"left: {what}" for what in watch.leftovers(mark, container)] + watch.taken(before)


def _late(ended: Outcome, limits: Limits, spent_s: float) -> list[str]:
    if ended.wall_s > limits.wall_s + GRACE_S:
        return [f"it ran for {ended.wall_s:.1f} s, its limit is {limits.wall_s:g} s and {GRACE_S:g} s of grace"]
    if spent_s > limits.wall_s + RETURN_S:
        return [f"we were back after {spent_s:.1f} s"]
    return []


def _told(ended: Outcome, canary: str) -> list[str]:
    said = b"".join((ended.stdout.head, ended.stdout.tail, ended.stderr.head, ended.stderr.tail))
    return ["a secret of the launcher is in its output"] if canary.encode() in said else []


def _changed(stage: Stage) -> list[str]:
    found = ["its bundle has changed"] if digest(stage.bundle) != stage.digest else []
    if visitors := stage.listener.count():
        found.append(f"{visitors} visitors from inside")
    return found + (["a pickle was opened"] if stage.trap.exists() else [])


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
