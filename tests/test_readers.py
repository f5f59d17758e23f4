"""What is read from files that others wrote is strict: refused in one line, or safe to hand to log, judge and guest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import wire
from runner import documents

DEEPEST = documents.MAX_DEPTH - 3
"""Lists in a parameter: the document, the case and its parameters are three levels already."""


def case(value: bytes) -> bytes:
    return b'[{"case_id": "a", "parameters": {"n": ' + value + b"}}]"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"9007199254740992", "integer of 2^53 or more: 9007199254740992"),
        (b"-9007199254740992", "integer of 2^53 or more"),
        (b"1" * 4000, "integer of 2^53 or more: 11111111111111111111"),
        (b'"\\udcff"', "a lone surrogate is no text"),
        (b'"\\UDCFF"', "not strict JSON"),
        (b'1, "\\udcff": 1', "a lone surrogate is no text"),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested deeper than 8 levels"),
        (b"[" * 500 + b"]" * 500, "nested deeper than 8 levels"),
        (b"[" * 100_000, "not strict JSON"),
        (b"1e999", "not a finite number"),
        (b"NaN", "not a finite number"),
        (b'1, "n": 2', "duplicate key 'n'"),
        (b'"\xff"', "not strict JSON"),
    ],
)
def test_a_bundles_document_that_the_guest_could_not_be_told_is_refused_in_one_short_line(
    value: bytes, why: str
) -> None:
    with pytest.raises(documents.DocumentError) as refused:
        documents.cases(case(value))
    said = str(refused.value)
    assert why in said
    assert said.startswith("cases.json: ")
    assert len(said) < 200
    assert said.isprintable()


def test_the_largest_integer_the_deepest_list_and_whole_characters_are_read() -> None:
    for value in (b"9007199254740991", b"-9007199254740991", b"[" * DEEPEST + b"]" * DEEPEST, b'"\\ud83d\\ude00"'):
        assert documents.cases(case(value))[0]["parameters"]["n"] == json.loads(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=10,
    )
)
def test_a_parameter_that_is_accepted_reaches_a_guest_as_it_was_written(value: object) -> None:
    try:
        document = documents.cases(case(json.dumps(value).encode()))
    except documents.DocumentError:
        return
    order = {"case": document[0]["parameters"]}
    try:
        assert wire.decode(wire.encode(order)) == order
    except wire.WireError as error:
        assert "[" in json.dumps(value) and "deep" in str(error)  # brackets inside a text count on the wire
