"""The command line: a command parses, calls one function, prints. stdout is the result, stderr the log, the code the answer.

`main` is the process's edge: every typed error of every package ends here as one line on stderr and an exit code of
`runner.exits`. What is not in its table is a bug of ours: code 70, with the traceback.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException

from eventstore import errors
from images.api import ImageFault
from ops import registry
from ops.contract import ContractError
from replay.fold import FoldError, State
from runner import cli_host, cli_read, episode, exits, host, progress, session, settings
from runner.bundle import BundleError, from_files, load
from runner.machine import Device, Wanted, machine
from runner.options import (
    AaPairs,
    Blocks,
    Calls,
    DeviceName,
    Engine,
    GuestPython,
    Home,
    ImageName,
    MaxCandidates,
    MaxCv,
    MaxPairs,
    MinSpeedup,
    Name,
    Seed,
    TotalSeconds,
)
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

HONEST_REFUSALS = ("baseline-unstable", "incomplete")
"""Refusals of a baseline that say something about the machine's noise, and nothing against the bundle."""

app = typer.Typer(
    name="assay",
    help="Runs and judges GPU kernels that nobody trusts.",
    epilog=exits.epilog(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def optimize(
    operator: Annotated[str, typer.Argument(metavar="OP", help="A registered operator.")],
    home: Home = None,
    shape: Annotated[str | None, typer.Option(help="Like B=8,T=2048,D=4096; the contract's default else.")] = None,
    dtype: Annotated[str, typer.Option(metavar="fp16|bf16|fp32", help="Type of inputs and outputs.")] = "fp16",
    device: DeviceName = "cuda",
    strategy: Annotated[str, typer.Option(metavar="grid|best_of_n", help="How the search space is walked.")] = "grid",
    max_candidates: MaxCandidates = None,
    seed: Seed = None,
    min_speedup: MinSpeedup = None,
    max_cv: MaxCv = None,
    max_pairs: MaxPairs = None,
    aa_pairs: AaPairs = None,
    blocks: Blocks = None,
    calls: Calls = None,
    max_total_seconds: TotalSeconds = None,
    engine: Engine = "auto",
    image: ImageName = "host",
    guest_python: GuestPython = None,
) -> int:
    """Search an operator's knobs for a faster kernel."""
    flags = _given(max_candidates, seed, min_speedup, max_cv, max_pairs, aa_pairs, blocks, calls, max_total_seconds)
    chosen = registry.get(operator)
    name = settings.strategy(strategy, settings.SEARCH)
    wanted = _wanted(device, engine, image, guest_python)
    sizes = chosen.shape(_shape(shape) if shape is not None else None, wanted.device)
    bundle = from_files(chosen.bundle(sizes, dtype, wanted.device))
    points = session.space(operator, wanted.device, bundle.kernel)
    known = {"strategy": name, "space": session.space_digest(operator, points)}
    limit = chosen.contract.promotion.max_variance
    promotion = {
        "min_speedup": chosen.contract.promotion.min_speedup,
        "max_cv": max(limit, settings.CPU_MAX_CV) if wanted.device == "cpu" else limit,
    }
    resolved = settings.resolve(bundle, flags, contract=promotion, tries=len(points), **known)
    opening = session.Opening(
        label=operator,
        bundle=bundle,
        settings=resolved,
        machine=machine(wanted, host.home(home)),
        provider=session.provider_of(resolved, bundle, operator, wanted.device),
        operator=operator,
        dtype=dtype,
        shape=sizes,
    )
    return _finish(_begin(host.home(home), opening), host.home(home))


@app.command()
def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A directory with the frozen contract.")],
    provider: Annotated[str, typer.Option(metavar="command|mock", help="Who proposes.")],
    home: Home = None,
    command: Annotated[str | None, typer.Option(help="Program of the command provider, with arguments.")] = None,
    mock_dir: Annotated[Path | None, typer.Option(help="Sources of the mock provider; else it echoes.")] = None,
    provider_timeout_s: Annotated[float | None, typer.Option(help="Per proposal (default 600).")] = None,
    device: DeviceName = "cuda",
    max_candidates: MaxCandidates = None,
    seed: Seed = None,
    min_speedup: MinSpeedup = None,
    max_cv: MaxCv = None,
    max_pairs: MaxPairs = None,
    aa_pairs: AaPairs = None,
    blocks: Blocks = None,
    calls: Calls = None,
    max_total_seconds: TotalSeconds = None,
    engine: Engine = "auto",
    image: ImageName = "host",
    guest_python: GuestPython = None,
) -> int:
    """Improve the kernel of a bundle with candidates that somebody proposes."""
    flags = _given(max_candidates, seed, min_speedup, max_cv, max_pairs, aa_pairs, blocks, calls, max_total_seconds)
    name = settings.strategy(provider, ("command", "mock"))
    wanted = _wanted(device, engine, image, guest_python)
    contract = load(bundle)
    asked = {"command": command, "mock_dir": str(mock_dir.absolute()) if mock_dir else None}
    on_cpu = {"max_cv": settings.CPU_MAX_CV} if wanted.device == "cpu" else None
    given = {**flags, **asked, "provider_timeout_s": provider_timeout_s}
    resolved = settings.resolve(contract, given, contract=on_cpu, strategy=name)
    opening = session.Opening(
        label=bundle.absolute().name,
        bundle=contract,
        settings=resolved,
        machine=machine(wanted, host.home(home)),
        provider=session.provider_of(resolved, contract, None, wanted.device),
        live_kernel=str((bundle / "kernel.py").absolute()),
    )
    return _finish(_begin(host.home(home), opening), host.home(home))


@app.command()
def resume(
    name: Name,
    home: Home = None,
    guest_python: GuestPython = None,
) -> int:
    """Go on with an episode that was interrupted or killed. Its recorded settings hold."""
    place = host.home(home)
    with progress.shown() as watch:
        state = session.resume(place, episode.check_id(name), guest_python, watch)
    return _finish(state, place)


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
            return f"assay: {' '.join(str(error).split())}", code
    return f"assay: a bug of ours: {type(error).__name__}: {error}", None


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """A polite kill ends like Ctrl-C: containers are destroyed, and the user is told how to go on."""
    raise KeyboardInterrupt


def _begin(home: Path, opening: session.Opening) -> State:
    with progress.shown() as watch:
        return session.begin(home, opening, watch)


def _finish(state: State, home: Path) -> int:
    """Print the one JSON result; the code says how the episode ended."""
    sys.stdout.write(json.dumps(episode.summary(state, home), indent=2, sort_keys=True) + "\n")
    assert state.finished is not None
    if state.refused is not None and state.refused.reason in HONEST_REFUSALS:
        return exits.NO_WINNER
    ends = {"winner": exits.WINNER, "no-winner": exits.NO_WINNER, "refused": exits.BAD_BUNDLE, "fault": exits.FAULT}
    return ends[state.finished.outcome]


def _wanted(device: str, engine: str, image: str, guest_python: Path | None) -> Wanted:
    known: dict[str, Device] = {"cpu": "cpu", "cuda": "cuda"}
    if device not in known:
        raise exits.UsageError(f"unknown device {device!r}; there is cuda, cpu")
    if engine not in ("auto", "docker", "bwrap"):
        raise exits.UsageError(f"unknown engine {engine!r}; there is auto, docker, bwrap")
    if image not in ("host", "cpu"):
        raise exits.UsageError(f"unknown image {image!r}; there is host, cpu")
    return Wanted(known[device], engine, image, guest_python)


def _shape(text: str) -> dict[str, int]:
    """`B=8,T=2048` as sizes. Which symbols there are is the contract's to say."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        symbol, equals, size = part.strip().partition("=")
        if not (symbol and equals and size.isascii() and size.isdigit()):
            raise exits.UsageError(f"--shape: {part.strip()!r} is not like B=8")
        if symbol in sizes:
            raise exits.UsageError(f"--shape: {symbol} is given twice")
        sizes[symbol] = int(size)
    return sizes


def _given(*values: Any) -> dict[str, Any]:
    """The flags that two commands share, in the order of their parameters."""
    names = (
        "max_candidates",
        "seed",
        "min_speedup",
        "max_cv",
        "max_pairs",
        "aa_pairs",
        "blocks",
        "calls",
        "max_total_seconds",
    )
    return dict(zip(names, values, strict=True))


if __name__ == "__main__":
    main()
