"""A kind that was ever written must be readable for ever; and every digest in a fact is classified: blob or not."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from eventstore.canonical import encode
from eventstore.events import KINDS
from eventstore.facts import FACT, EpisodeFinished, EpisodeStarted, Fact
from eventstore.references import BLOB_FIELDS, BLOB_MAPS, NOT_BLOBS, blobs_named

GOLDEN = Path(__file__).parent / "golden"
MODELS: tuple[type[BaseModel], ...] = get_args(get_args(Fact)[0])
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def covers(now: Any, stored: Any) -> bool:
    """Whether everything stored is still there, whatever fields came later."""
    if isinstance(stored, dict):
        return all(key in now and covers(now[key], value) for key, value in stored.items())
    if isinstance(stored, list):
        return len(now) == len(stored) and all(map(covers, now, stored))
    return bool(now == stored)


def test_every_kind_has_a_stored_example():
    assert {path.stem for path in GOLDEN.glob("*.json")} == KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_stored_example_parses_without_loss_and_is_stored_again_the_same(kind):
    import json

    stored = (GOLDEN / f"{kind}.json").read_bytes()
    fact = FACT.validate_json(stored)
    assert fact.kind == kind
    assert covers(json.loads(encode(fact)), json.loads(stored))
    assert FACT.validate_json(encode(fact)) == fact


def test_every_field_that_holds_a_digest_is_known_as_a_blob_or_as_something_else():
    holding = {
        name
        for model in MODELS
        for name, schema in model.model_json_schema()["properties"].items()
        if "sha256:" in str(schema)
    }
    assert holding == BLOB_FIELDS | BLOB_MAPS | NOT_BLOBS


def test_only_an_events_own_fields_name_blobs():
    named = {"kind": "x", "source": A, "log": None, "bundle": B, "manifest": {"kernel.py": A, "task.py": B}}
    assert blobs_named(named) == {A, B}
    assert blobs_named({"kind": "x", "bundle": A, "environment": {"source": A, "manifest": {"a": B}}}) == set()


def test_the_blobs_of_real_facts_are_found():
    finished = EpisodeFinished(outcome="winner", winner="c001", winner_source=A)
    assert blobs_named(finished.model_dump()) == {A}
    started = FACT.validate_json((GOLDEN / "episode.started.json").read_bytes())
    assert isinstance(started, EpisodeStarted)
    assert blobs_named(started.model_dump()) == set(started.manifest.values())
