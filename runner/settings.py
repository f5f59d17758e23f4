"""Settings of a run: optional layers (defaults < budget.json < flags) resolved once into one frozen object.

The resolved object is written into `episode.started`, and from then on only that record is read: resuming an episode
with other flags, another budget.json or a newer default changes nothing about how it is decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ops.decide.rules import AA_PAIRS, FINALIST_PAIRS, Rules
from runner.bundle import Bundle
from runner.exits import UsageError

Strategy = Literal["grid", "best_of_n", "command", "mock", "file"]
SEARCH = ("grid", "best_of_n")
LATER = ("ucb", "thompson", "epsilon", "reinforce", "grpo")
"""Strategies of the seed that come with a later issue."""

Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600, allow_inf_nan=False)]


class Settings(BaseModel):
    """Everything that steers a run. JSON-able; the thresholds of decisions stand apart, under `rules`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    strategy: Strategy
    """Who proposes: a search over an operator's knobs, the user's program, a folder of files, or one file."""
    max_candidates: Annotated[int, Field(ge=1, le=1024)] = 64
    """Proposals asked for, the failed ones included."""
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Seeds the search and the order of arms. Never an input: those come from a secret of each measurement."""
    command: str | None = None
    """Command line of the `command` provider."""
    mock_dir: str | None = None
    """Folder of the `mock` provider; absent: it echoes the baseline."""
    file: str | None = None
    """The one kernel of `assay judge`."""
    provider_timeout_s: Seconds = 600.0
    """Seconds that the `command` provider has for each proposal."""
    max_total_seconds: Seconds = 3600.0
    """Working time of the episode, after which no further proposal is asked for. Pauses between runs do not count."""
    aa_pairs: Annotated[int, Field(ge=2, le=100)] = AA_PAIRS
    """Baseline against itself, before any candidate exists."""
    finalist_pairs: Annotated[int, Field(ge=2, le=100)] = FINALIST_PAIRS
    """Fresh pairs of the final revalidation."""
    verify_calls: Annotated[int, Field(ge=1, le=1000)] = 3
    """First calls of each arm on each case in a pair: checked like all others, kept out of the speed (they warm up)."""
    alone_calls: Annotated[int, Field(ge=1, le=1000)] = 5
    """Calls per case of the baseline alone, once before the candidate's source is released and once after it is gone."""
    blocks: Annotated[int, Field(ge=3, le=1000)] = 6
    """Interleaved rounds over the arms inside one pair; the order of arms is drawn anew for each."""
    calls: Annotated[int, Field(ge=1, le=1000)] = 3
    """Timed and checked calls of each arm on each case in one block."""
    call_timeout_s: Seconds = 30.0
    """Seconds that one call may take; beyond it the candidate is rejected (`call-timeout`)."""
    families: tuple[str, ...] = ("*",)
    """Hidden input families, at random places among the calls of every candidate's pairs; `*`: all that the task has."""
    space: str | None = None
    """Digest over all rendered sources of the operator's search space: a resumed run must search the same one."""
    rules: Rules = Field(default_factory=Rules)
    """The thresholds of every decision."""

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Self:
        """The settings that an episode recorded."""
        return cls.model_validate(recorded)

    def record(self) -> dict[str, Any]:
        """For `episode.started`: every default spelt out."""
        return self.model_dump(mode="json")


CPU_MAX_CV = 0.30
"""Where no GPU is, block medians vary with whatever else the cores do, for every arm alike; the paired ratio bears it, and the
interval over pairs judges it. Ten per cent would reject large and certain gains there."""


def resolve(
    bundle: Bundle,
    flags: Mapping[str, Any],
    *,
    contract: Mapping[str, Any] | None = None,
    tries: int | None = None,
    **known: Any,
) -> Settings:
    """Merge the layers: defaults < `contract` (an operator's) < budget.json < `flags` < `known`.

    Each holds names of `Settings` or of `Rules`; a flag that is None was not given. `tries`: no more candidates than
    this can be tried, whatever `max_candidates` says; alpha is shared among so many. Raises UsageError, one line.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    layers = {**(contract or {}), **budget(bundle.budget), **given, **known}
    mine = {name: value for name, value in layers.items() if name not in Rules.model_fields}
    rules = {name: value for name, value in layers.items() if name in Rules.model_fields}
    try:
        partial = Settings.model_validate(mine)
        rules |= {
            "tries": max(1, min(partial.max_candidates, tries or partial.max_candidates)),
            "weights": bundle.weights,
            "protected": tuple(sorted(bundle.protected)),
        }
        return Settings.model_validate({**mine, "rules": rules})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][-1]) if first["loc"] else "settings"
        raise UsageError(_refused(name, first)) from None


def _refused(name: str, error: Mapping[str, Any]) -> str:
    """One line: the setting, as its flag is spelt; what it may be; what was given, where that is one value."""
    said = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    if isinstance(error["input"], Mapping):  # settings that contradict one another: the text names them
        return said.replace("_", "-")
    return f"{name.replace('_', '-')}: {said} (given: {error['input']!r})"


def budget(document: Mapping[str, Any]) -> dict[str, Any]:
    """budget.json in our words. Rounds exist only as a product; repetitions are spread over the blocks of a pair."""
    layer: dict[str, Any] = {
        name: document[name] for name in ("max_total_seconds", "min_speedup", "max_cv") if name in document
    }
    if "max_rounds" in document or "candidates_per_round" in document:
        layer["max_candidates"] = document.get("max_rounds", 5) * document.get("candidates_per_round", 2)
    if "max_candidate_seconds" in document:
        layer["provider_timeout_s"] = document["max_candidate_seconds"]
    if "benchmark_repetitions" in document:
        blocks = int(Settings.model_fields["blocks"].default)
        layer["calls"] = math.ceil(document["benchmark_repetitions"] / blocks)
    return layer


def strategy(name: str, allowed: tuple[str, ...], what: str = "strategy") -> str:
    """Check a strategy's or provider's name. UsageError says which exist, and which come later."""
    if name in LATER:
        raise UsageError(f"strategy {name} comes later; there is {', '.join(allowed)}")
    if name not in allowed:
        raise UsageError(f"unknown {what} {name!r}; there is {', '.join(allowed)}")
    return name
