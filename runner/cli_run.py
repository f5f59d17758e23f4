"""The commands that run candidates: a search, a proposer's, one given file, and going on with what was interrupted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from replay import account as told
from replay.fold import State
from runner import asked, episode, exits, host, progress, session, settings
from runner.bundle import load
from runner.machine import machine
from runner.options import (
    AaPairs,
    Blocks,
    Calls,
    DeviceName,
    Dtype,
    Engine,
    GuestPython,
    Home,
    ImageName,
    Json,
    MaxCandidates,
    MaxCv,
    MaxPairs,
    MinSpeedup,
    Name,
    Seed,
    Shape,
    TotalSeconds,
)

HONEST_REFUSALS = ("baseline-unstable", "incomplete")
"""Refusals of a baseline that say something about the machine's noise, and nothing against the bundle."""


def register(app: typer.Typer) -> None:
    """Hang the commands into the program."""
    for command in (judge, optimize, run, resume):
        app.command()(command)


def judge(
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="A complete kernel source, one file.")],
    bundle: Annotated[Path | None, typer.Option(metavar="BUNDLE", help="The contract: a directory.")] = None,
    op: Annotated[str | None, typer.Option(metavar="OP", help="Or a registered operator.")] = None,
    shape: Shape = None,
    dtype: Dtype = None,
    home: Home = None,
    device: DeviceName = "cuda",
    seed: Seed = None,
    min_speedup: MinSpeedup = None,
    max_cv: MaxCv = None,
    max_pairs: MaxPairs = None,
    aa_pairs: AaPairs = None,
    blocks: Blocks = None,
    calls: Calls = None,
    engine: Engine = "auto",
    image: ImageName = "host",
    guest_python: GuestPython = None,
    as_json: Json = False,
) -> int:
    """Judge one kernel file against a contract.

    Is it right on every call, and faster than the contract's baseline beyond doubt? Prints the verdict in words, with the numbers.
    """
    if not kernel.is_file():
        raise exits.UsageError(f"{kernel}: {'a kernel is one file' if kernel.exists() else 'no such file'}")
    if (bundle is None) == (op is None):
        raise exits.UsageError("judge needs one contract to judge by: --bundle BUNDLE or --op OP")
    if bundle is not None and (shape is not None or dtype is not None):
        raise exits.UsageError("--shape and --dtype go with --op; a bundle's cases.json has its own")
    wish = asked.wanted(device, engine, image, guest_python)
    flags = asked.given(1, seed, min_speedup, max_cv, max_pairs, aa_pairs, blocks, calls, None)
    sizes: dict[str, int] = {}
    if op is not None:
        contract, sizes, promotion = asked.operator(op, shape, dtype or "fp16", wish)
    else:
        assert bundle is not None
        contract, promotion = load(bundle), asked.on_cpu(wish)
    resolved = settings.resolve(contract, flags, contract=promotion, strategy="file", file=str(kernel.absolute()))
    place = host.home(home)
    opening = session.Opening(
        label=op or (bundle.absolute().name if bundle else ""),
        bundle=contract,
        settings=resolved,
        machine=machine(wish, place),
        provider=session.provider_of(resolved, contract, op, wish.device),
        operator=op,
        dtype=(dtype or "fp16") if op else None,
        shape=sizes,
        live_kernel=str((bundle / "kernel.py").absolute()) if bundle else None,
    )
    state = _begin(place, opening)
    if as_json:
        return _finish(state, place)
    sys.stdout.write(told.text(state))
    return _code(state)


def optimize(
    operator: Annotated[str, typer.Argument(metavar="OP", help="A registered operator.")],
    home: Home = None,
    shape: Shape = None,
    dtype: Dtype = "fp16",
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
    flags = asked.given(
        max_candidates, seed, min_speedup, max_cv, max_pairs, aa_pairs, blocks, calls, max_total_seconds
    )
    name = settings.strategy(strategy, settings.SEARCH)
    wish = asked.wanted(device, engine, image, guest_python)
    bundle, sizes, promotion = asked.operator(operator, shape, dtype or "fp16", wish)
    points = session.space(operator, wish.device, bundle.kernel)
    if not points:
        raise exits.UsageError(
            f"{operator}: nothing to search on {wish.device} beside the baseline; its contract.yaml gives no "
            f"{'search_space_cpu' if wish.device == 'cpu' else 'search_space'}"
        )
    known = {"strategy": name, "space": session.space_digest(operator, points)}
    resolved = settings.resolve(bundle, flags, contract=promotion, tries=len(points), **known)
    place = host.home(home)
    opening = session.Opening(
        label=operator,
        bundle=bundle,
        settings=resolved,
        machine=machine(wish, place),
        provider=session.provider_of(resolved, bundle, operator, wish.device),
        operator=operator,
        dtype=dtype,
        shape=sizes,
    )
    return _finish(_begin(place, opening), place)


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A directory with the frozen contract.")],
    provider: Annotated[str, typer.Option(metavar="command|mock", help="Who proposes.")],
    home: Home = None,
    command: Annotated[str | None, typer.Option(help="Program of the command provider, with arguments.")] = None,
    mock_dir: Annotated[Path | None, typer.Option(help="Sources of the mock provider; else it echoes.")] = None,
    provider_timeout_s: Annotated[
        float | None, typer.Option(help="Of the command provider, per proposal (default 600).")
    ] = None,
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
    """Improve a bundle's kernel with proposed candidates.

    They come from any program (`command`), or from a folder of files (`mock`).
    """
    flags = asked.given(
        max_candidates, seed, min_speedup, max_cv, max_pairs, aa_pairs, blocks, calls, max_total_seconds
    )
    name = settings.strategy(provider, ("command", "mock"), "provider")
    asked.belongs(
        name,
        command=(command, "command"),
        mock_dir=(mock_dir, "mock"),
        provider_timeout_s=(provider_timeout_s, "command"),
    )
    wish = asked.wanted(device, engine, image, guest_python)
    contract = load(bundle)
    own = {"command": command, "mock_dir": str(mock_dir.absolute()) if mock_dir else None}
    given = {**flags, **own, "provider_timeout_s": provider_timeout_s}
    resolved = settings.resolve(contract, given, contract=asked.on_cpu(wish), strategy=name)
    place = host.home(home)
    opening = session.Opening(
        label=bundle.absolute().name,
        bundle=contract,
        settings=resolved,
        machine=machine(wish, place),
        provider=session.provider_of(resolved, contract, None, wish.device),
        live_kernel=str((bundle / "kernel.py").absolute()),
    )
    return _finish(_begin(place, opening), place)


def resume(
    name: Name,
    home: Home = None,
    guest_python: GuestPython = None,
) -> int:
    """Go on with an episode that was interrupted.

    Interrupted by Ctrl-C, or killed. Its recorded settings hold.
    One of `judge` ends with its verdict in words, others with one JSON object.
    """
    place = host.home(home)
    with progress.shown() as watch:
        state = session.resume(place, episode.check_id(name), guest_python, watch)
    if state.started is not None and state.started.settings.get("strategy") == "file":  # it began as `judge`
        sys.stdout.write(told.text(state))
        return _code(state)
    return _finish(state, place)


def _begin(home: Path, opening: session.Opening) -> State:
    host.make_home(home)
    with progress.shown() as watch:
        return session.begin(home, opening, watch)


def _finish(state: State, home: Path) -> int:
    """Print the one JSON result; the code says how the episode ended."""
    sys.stdout.write(json.dumps(episode.summary(state, home), indent=2, sort_keys=True) + "\n")
    return _code(state)


def _code(state: State) -> int:
    assert state.finished is not None
    if state.refused is not None and state.refused.reason in HONEST_REFUSALS:
        return exits.NO_WINNER
    ends = {"winner": exits.WINNER, "no-winner": exits.NO_WINNER, "refused": exits.BAD_BUNDLE, "fault": exits.FAULT}
    return ends[state.finished.outcome]
