"""The command line: a command parses, calls one function, prints. stdout is the result, stderr the log, the code the answer.

`main` is the process's edge: every typed error of every package ends here as one line on stderr and an exit code of
`runner.exits`. What is not in its table is a bug of ours: code 70, with the traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from eventstore import errors
from images.api import ImageFault
from ops import registry
from ops.contract import ContractError
from replay.fold import FoldError
from runner import cli_host, cli_read, cli_run, exits, host
from runner.bundle import BundleError
from sandbox.api import SandboxError, SandboxFault, SandboxUnavailable

CODES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    ((registry.RegistryError, ContractError, errors.BadInput), exits.USAGE),
    (BundleError, exits.BAD_BUNDLE),
    (errors.StoreMissing, exits.NOT_FOUND),
    ((SandboxUnavailable, ImageFault, errors.LibraryTooOld), exits.UNAVAILABLE),
    ((SandboxFault, SandboxError), exits.FAULT),
    ((errors.StoreFull, errors.StoreReadOnly), exits.CANNOT_CREATE),
    ((errors.StoreLocked, errors.Conflict), exits.LOCKED),
    ((errors.StoreCorrupt, errors.StoreTooNew, errors.BlobError, FoldError), exits.CORRUPT),
    (errors.StoreError, exits.FAULT),
    (OSError, exits.CANNOT_CREATE),
)
"""Which error of which package ends in which code; the first that fits. Errors of the runner carry their own."""

WAY_ON: dict[type[BaseException], str] = {
    errors.StoreMissing: ": nothing was run with this home yet; --home or ASSAY_HOME names another",
    BundleError: "; docs/bundles.md says what a bundle is",
}
"""What an error of a package below cannot know: where its user goes on from here."""

app = typer.Typer(
    name="assay",
    help="Runs and judges GPU kernels that nobody trusts.",
    epilog=exits.epilog(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"assay {host.program_version()}\n")
        raise typer.Exit(exits.WINNER)


@app.callback()
def _assay(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Runs and judges GPU kernels that nobody trusts."""


cli_run.register(app)
cli_read.register(app)
cli_host.register(app)


def main() -> None:
    """The program. Exits with a code of `runner.exits`."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    sys.exit(_guarded())


def _guarded() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its exit
        return exits.WINNER
    except (Exception, KeyboardInterrupt) as error:  # the edge of the process
        message, code = verdict(error)
        if code is None:
            traceback.print_exc()
        sys.stderr.write(message + "\n")
        return exits.FAULT if code is None else code


def verdict(error: BaseException) -> tuple[str, int | None]:
    """What an error means to the user: one line, and the exit code. None: a bug of ours."""
    if isinstance(error, TyperException):
        message = error.format_message()
        return (message if message.startswith("Usage:") else f"assay: {message}"), exits.USAGE
    if isinstance(error, exits.RunnerError):
        return f"assay: {error}", error.code
    if isinstance(error, KeyboardInterrupt | Abort):
        return "assay: interrupted", exits.INTERRUPTED
    for kinds, code in CODES:
        if isinstance(error, kinds):
            return f"assay: {' '.join(str(error).split())}{WAY_ON.get(type(error), '')}", code
    return f"assay: a bug of ours: {type(error).__name__}: {error}", None


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """A polite kill ends like Ctrl-C: containers are destroyed, and the user is told how to go on."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
