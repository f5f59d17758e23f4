"""Exit codes: one table, printed in `--help`, and the runner's own errors that end in one of them.

    RunnerError            what this package raises; its message is one line for the user
     +- UsageError         64  the command line or a setting is wrong
     +- NotFound           66  no such episode, no such home
     +- Unavailable        69  no sandbox, no GPU, no guest environment; the message says what to do
     +- OurFault           70  something of ours failed; a candidate never causes it
     +- CannotCreate       73  the home or a file in it could not be written
     +- Busy               75  another runner works on this episode

Errors of the packages below are not translated here: `runner.cli.main` maps each of their types to a code.
"""

from __future__ import annotations

WINNER = 0
NO_WINNER = 2
USAGE = 64
BAD_BUNDLE = 65
NOT_FOUND = 66
UNAVAILABLE = 69
FAULT = 70
CANNOT_CREATE = 73
CORRUPT = 74
LOCKED = 75
DISAGREES = 76
INTERRUPTED = 130

MEANING = {
    WINNER: "a validated winner; or, of a command that reads back: all agrees",
    NO_WINNER: "finished without a winner; also where the machine is too noisy to compare anything",
    USAGE: "wrong usage or bad input",
    BAD_BUNDLE: "unusable bundle, or its own baseline is wrong or crashes",
    NOT_FOUND: "no such episode or home",
    UNAVAILABLE: "no sandbox, GPU or guest environment",
    FAULT: "our fault, never a verdict",
    CANNOT_CREATE: "disk full, or a file could not be created",
    CORRUPT: "the log is corrupt",
    LOCKED: "the log or the episode is in use",
    DISAGREES: "a replay disagrees with the log, an image or a lock with its record, a sandbox with what must be",
    INTERRUPTED: "interrupted; the episode can be resumed",
}


class RunnerError(Exception):
    """Base of what the runner raises for its user. One line."""

    code = FAULT


class UsageError(RunnerError):
    code = USAGE


class NotFound(RunnerError):
    code = NOT_FOUND


class Unavailable(RunnerError):
    code = UNAVAILABLE


class OurFault(RunnerError):
    code = FAULT


class CannotCreate(RunnerError):
    code = CANNOT_CREATE


class Busy(RunnerError):
    code = LOCKED


def epilog() -> str:
    """The table as one paragraph of `--help`."""
    return "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in sorted(MEANING.items())) + "."
