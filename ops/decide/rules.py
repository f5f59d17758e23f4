"""The thresholds of every decision, as one frozen object that is recorded in `episode.started`.

They stand under the key `rules` of the episode's settings, apart from the runner's own settings, so that an unknown or
misspelt threshold is refused rather than ignored:

    settings = {"strategy": "grid", "seed": 0, "aa_pairs": 4, "finalist_pairs": 3, "rules": Rules(tries=10).settings()}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, lt=0.5)]

AA_PAIRS = 4
FINALIST_PAIRS = 3


class RulesError(ValueError):
    """One clear line: which threshold is unknown or out of range."""


class Rules(BaseModel):
    """Thresholds. Ratios are plain (1.01 = 1 % faster); all interval arithmetic is done on their logarithms."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    min_speedup: Positive = 1.01
    """A promotion's speed-up over the baseline must be at least this (point estimate)."""
    max_cv: Positive = 0.10
    """Largest robust coefficient of variation of a candidate's block medians inside one process."""
    alpha: Probability = 0.05
    """One-sided chance, over the whole episode, of promoting a candidate that is no better than the incumbent."""
    tries: Annotated[int, Field(ge=1, le=1024)] = 10
    """Candidates that the episode may try (its `max_candidates`): Bonferroni divisor of alpha."""
    min_pairs: Annotated[int, Field(ge=2, le=100)] = 3
    """Fresh pairs with evidence on speed before any promotion."""
    max_pairs: Annotated[int, Field(ge=2, le=100)] = 6
    """Pairs after which an undecided candidate is `ambiguous`."""
    case_regression: Annotated[float, Field(gt=0, le=1)] = 0.95
    """No protected case may run at less than this share of the baseline's speed."""
    screen_margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """Before `min_pairs`: reject early only if every pair is slower by this log ratio beyond what A/A pairs show."""
    sabotage_margin: Positive = 0.10
    """Log ratio by which the baseline must be slower beside the candidate than alone, beyond the A/A spread."""
    sabotage_pairs: Annotated[int, Field(ge=1)] = 3
    """Pairs, and more than half of all, that must show it before the verdict: a burst of a neighbour's load looks the same, and on
    busy CPUs two bursts met honest candidates. A pair that shows it is no evidence on speed in any case."""
    max_aa_halfwidth: Positive = 0.40
    """An A/A half-width (log ratio) above this makes the baseline too unstable to compare with."""
    weights: Mapping[str, Positive] = Field(default_factory=dict)
    """Weight per case; empty: the cases of the first pair, equally."""
    protected: tuple[str, ...] | None = None
    """Cases that must be right and must not regress; None: every case."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_pairs > self.max_pairs:
            raise ValueError(f"min_pairs {self.min_pairs} is more than max_pairs {self.max_pairs}")
        unknown = sorted(set(self.protected or ()) - set(self.weights)) if self.weights else []
        if unknown:
            raise ValueError(f"protected case without a weight: {unknown[0]}")
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rules that an episode recorded. Raises RulesError, one line, for an unknown key or a bad value."""
        flat = sorted(set(settings) & set(cls.model_fields))
        if flat:
            raise RulesError(f"settings: {flat[0]} belongs under the key rules")
        try:
            return cls.model_validate(settings.get("rules", {}))
        except ValidationError as error:
            first = error.errors()[0]
            raise RulesError(f"rules: {'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}") from None

    def settings(self) -> dict[str, Any]:
        """JSON-able form for `episode.started`, every default spelt out."""
        return self.model_dump(mode="json")

    @property
    def peeks(self) -> int:
        """How often a promotion can be decided for one candidate: after each pair from `min_pairs` to `max_pairs`."""
        return self.max_pairs - self.min_pairs + 1

    @property
    def promotion_alpha(self) -> float:
        """One-sided error of one look at one candidate: alpha shared out over candidates and looks."""
        return self.alpha / (self.tries * self.peeks)


def aa_pairs(settings: Mapping[str, Any]) -> int:
    """A/A pairs before the calibration."""
    return int(settings.get("aa_pairs", AA_PAIRS))


def finalist_pairs(settings: Mapping[str, Any]) -> int:
    """Pairs of the final revalidation."""
    return int(settings.get("finalist_pairs", FINALIST_PAIRS))
