"""What a hostile program achieved, read from what it said and from what the host saw: one small function per question.

A program's own word counts only against it, or as the answer to "which error stopped you?", where the host's view (nothing left,
nothing changed, nobody visited) is looked at besides. Every function is pure and returns a `Word`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ops import wire
from sandbox.api import Limits, Outcome
from sandbox.status import Seen

WON = frozenset({"done", "reached", "no end"})
"""Answers of a program that got what it tried for."""
REFUSED = frozenset({"EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS", "EXDEV", "ENOTDIR"})
NO_CALL = frozenset({"EPERM", "ENOSYS"})


@dataclass(frozen=True)
class Witness:
    """All there is to judge one run by."""

    outcome: Outcome
    limits: Limits
    canary: str
    """Text that lies in the launcher's environment and in a root-only file, and must be in no output."""
    mark: str
    heard: tuple[str, ...] = ()
    """What the host's end of the program's link understood, or `refused: why`, message by message."""
    link_s: float = 0.0
    """How long the host's end was busy with the link."""
    grown_bytes: int = 0
    """Growth of our own peak memory."""
    neighbour: str = ""
    """Name of the job that ran beside it."""

    @property
    def said(self) -> str:
        return self.outcome.stdout.text()


@dataclass(frozen=True)
class Word:
    """What one question's function found."""

    evidence: str
    problem: str = ""
    """What is not as it must be; empty when all is."""
    seen: Seen = field(default_factory=Seen)


Judge = Callable[[Witness], Word]


def nothing(witness: Witness) -> Word:
    """The status says it all."""
    return Word(ending(witness.outcome))


def ending(outcome: Outcome) -> str:
    how = f"signal {outcome.signal}" if outcome.signal else f"exit {outcome.exit_code}"
    how = f"ended after {outcome.wall_s:.1f} s" if outcome.status == "timeout" else how
    facts = {"oom kills": outcome.oom_kills, "forks refused": outcome.pids_refused}
    return ", ".join([how, *(f"{n} {name}" for name, n in facts.items() if n)])


def forks_refused(witness: Witness) -> Word:
    """The limit on processes said no, whatever ended the run."""
    refused = witness.outcome.pids_refused
    return Word(
        ending(witness.outcome), "" if refused is None or refused > 0 else "the limit on processes was never hit"
    )


def prints(text: str) -> Judge:
    """It says exactly this."""

    def judge(witness: Witness) -> Word:
        said = witness.said.strip()
        noise = witness.outcome.stderr.text()[-200:]
        return Word(ending(witness.outcome), "" if said == text else f"said {said[:80]!r} {noise!r}, not {text!r}")

    return judge


def refused(errors: frozenset[str] = REFUSED, at_least: int = 1) -> Judge:
    """Its answers, `{what: error}`: none is a success, each is one of these errors, and all were tried."""

    def judge(witness: Witness) -> Word:
        answers = _json(witness)
        if not isinstance(answers, dict) or len(answers) < at_least:
            return Word(
                "", f"it did not try all it should: {witness.said[:200]!r} {witness.outcome.stderr.text()[-200:]!r}"
            )
        won = sorted(name for name, answer in answers.items() if answer in WON)
        other = sorted(f"{name}: {answer}" for name, answer in answers.items() if answer not in errors | WON)
        problem = (
            f"it achieved: {', '.join(won)}" if won else f"not refused but failed: {', '.join(other)}" if other else ""
        )
        return Word(f"{len(answers)} attempts refused", problem, Seen(policy_broken=bool(won)))

    return judge


def network(witness: Witness) -> Word:
    """It reached nobody, by whichever error."""
    answers = _json(witness)
    if not isinstance(answers, dict):
        return Word("", f"no answers: {witness.said[:200]!r}")
    won = sorted(name for name, answer in answers.items() if answer in WON)
    short = "" if won or len(answers) == 16 else f"it tried {len(answers)} of 16 roads"
    problem = f"it reached: {', '.join(won)}" if won else short
    return Word(f"{len(answers)} roads, none leads anywhere", problem, Seen(policy_broken=bool(won)))


def disk(witness: Witness) -> Word:
    """Read-only places took nothing; the writable ones took what their caps say."""
    full = _json(witness)
    if not isinstance(full, dict):
        return Word("", f"no answers: {witness.said[:200]!r}")
    wrong = [f"{place} took {mib} MiB" for place, (mib, _) in full.items() if place not in ("/tmp", "/dev/shm") and mib]
    caps = {"/tmp": witness.limits.tmp_bytes >> 20, "/dev/shm": witness.limits.shm_bytes >> 20}
    wrong += [
        f"{place}: {full.get(place)}, cap {cap} MiB"
        for place, cap in caps.items()
        if full.get(place) != [cap, "ENOSPC"]
    ]
    stopped = Seen(disk_full=full.get("/tmp", [0, ""])[1] == "ENOSPC")
    return Word(f"/tmp took {caps['/tmp']} MiB, then ENOSPC", "; ".join(wrong), stopped)


def no_space(witness: Witness) -> Word:
    """Stopped for space or inodes, by its own word; or by another cap, which the status shows."""
    said = witness.said.strip()
    return Word(said[:80] or ending(witness.outcome), "", Seen(disk_full="ENOSPC" in said or "No space left" in said))


def canary_unseen(witness: Witness) -> Word:
    """It could read what it may, and nothing of the launcher's."""
    problem = "" if "/bundle/kernel.py def kernel()" in witness.said else "it could not read its own bundle"
    leaked = "shadow" in witness.said
    return Word("no secret in its output", "it read a host file" if leaked else problem, Seen(policy_broken=leaked))


def alone(witness: Witness) -> Word:
    """Of a neighbour that runs at the same time it sees nothing."""
    seen = _json(witness)
    if not isinstance(seen, dict):
        return Word("", f"no answers: {witness.said[:200]!r}")
    strangers = [line for line in seen["processes"] if witness.neighbour in line] + seen["files"] + seen["devices"]
    problem = f"it saw {', '.join(strangers)[:200]}" if strangers else ""
    return Word(f"{len(seen['processes'])} processes, all its own", problem, Seen(policy_broken=bool(strangers)))


def bounded_output(witness: Witness) -> Word:
    """Of what it wrote only the head and the tail were kept, stream by stream, and we did not hoard it."""
    kept = [len(stream.head) + len(stream.tail) for stream in (witness.outcome.stdout, witness.outcome.stderr)]
    seen = witness.outcome.stdout.seen + witness.outcome.stderr.seen
    problem = f"kept {max(kept)} bytes of a stream" if max(kept) > 2 * witness.limits.kept_bytes else ""
    if witness.grown_bytes > 64 << 20:
        problem = f"the runner grew by {witness.grown_bytes >> 20} MiB"
    return Word(f"saw {seen >> 10} KiB, kept {sum(kept) >> 10} KiB", problem)


def idle_clock(witness: Witness) -> Word:
    """Wall time went by, CPU time did not."""
    return _clocks(witness, lambda cpu_s: cpu_s < 0.5 * witness.limits.wall_s)


def busy_clock(witness: Witness) -> Word:
    """CPU time was counted apart from wall time (on a busy machine it is the smaller one)."""
    return _clocks(witness, lambda cpu_s: cpu_s > 0.1 * witness.limits.wall_s)


def host_clock(witness: Witness) -> Word:
    """No clock was set, and the run's length by the host's clock is a plausible one."""
    word = refused(frozenset({"EPERM"}), at_least=3)(witness)
    odd = not 0 < witness.outcome.wall_s <= witness.limits.wall_s
    return Word(word.evidence, f"the run lasted {witness.outcome.wall_s} s" if odd else word.problem, word.seen)


def partial_output(witness: Witness) -> Word:
    """What it wrote before it was ended was kept."""
    kept = witness.outcome.stdout.seen
    return Word(f"kept {kept} bytes of a slow writer", "" if kept >= 3 else "what it wrote was lost")


def raw_kept(witness: Witness) -> Word:
    """Stored as it came, shown without a control character."""
    raw, shown = witness.outcome.stdout.head, witness.said
    loud = [c for c in shown if not (c.isprintable() or c in "\n\t")]
    whole = raw.startswith(b"\x1b]0;title\x07") and raw.endswith(b" end") and b"\x00\xff\xfe\xc3(" in raw
    return Word(f"{len(raw)} bytes kept, shown escaped", "" if whole and not loud else f"kept {raw!r}, shown {shown!r}")


def open_files(witness: Witness) -> Word:
    found = re.fullmatch(r"EMFILE (\d+)", witness.said.strip())
    fits = found is not None and int(found[1]) <= witness.limits.open_files
    return Word(witness.said.strip(), "" if fits else f"cap {witness.limits.open_files}: said {witness.said[:80]!r}")


def no_core(witness: Witness) -> Word:
    """The limit is zero and could not be raised. (That no file appears is looked at by `watch`.)"""
    said = witness.said.strip()
    problem = (
        "" if said == "0" and witness.outcome.signal == 6 else f"core limit {said[:40]!r}, {ending(witness.outcome)}"
    )
    return Word("core limit 0, signal 6", problem)


def never_blocked(witness: Witness) -> Word:
    """We offered a megabyte to one that never reads, and went on after our own limit."""
    problem = "" if witness.link_s < 3 and "full" in witness.heard else f"{witness.heard} in {witness.link_s:.1f} s"
    return Word(f"gave up after {witness.link_s:.1f} s", problem or prints("slept")(witness).problem)


def protocol(messages: int) -> Judge:
    """So many bad messages, each refused on its own, and the honest one after them understood."""

    def judge(witness: Witness) -> Word:
        bad, last = witness.heard[:-1], witness.heard[-1:]
        accepted = [said for said in bad if not said.startswith("refused")]
        problem = f"understood {accepted[0][:80]!r}" if accepted else ""
        if len(bad) != messages or not (last and last[0].startswith("honest")):
            problem = f"heard {len(bad)} of {messages} messages and {last}"
        return Word(f"{len(bad)} messages refused one by one", problem, Seen(protocol_broken=len(bad) > len(accepted)))

    return judge


def _clocks(witness: Witness, fits: Callable[[float], bool]) -> Word:
    cpu_s = witness.outcome.cpu_s
    evidence = f"wall {witness.outcome.wall_s:.1f} s, CPU {'not counted here' if cpu_s is None else f'{cpu_s:.1f} s'}"
    return Word(evidence, "" if cpu_s is None or fits(cpu_s) else evidence)


def _json(witness: Witness) -> Any:
    """Its answers, through the strict reader; None for what that refuses."""
    try:
        return wire.read_json(witness.outcome.stdout.head.strip())
    except wire.JsonError:
        return None
