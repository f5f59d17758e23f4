"""The wire is strict: what a hostile guest may send ends as WireError, whatever it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import wire


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[1]",
        b"null",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": -1e999}',
        b'{"a": 9007199254740992}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a": 1, "a": 2}',
        b'{"a": "\\udcff"}',
        b'{"a": "\\UDCFF"}',
        b'\xff{"a": 1}',
        b'{"a": ' + b"[" * 9 + b"]" * 9 + b"}",
        b'{"a": "' + b"]" * 99 + b'", "b": ' + b"[" * 9 + b"]" * 9 + b"}",
        b'{"a": "\\"' + b"]" * 99 + b'", "b": ' + b"[" * 9 + b"]" * 9 + b"}",
        b'{"a": [' + b"0," * wire.MESSAGE.items + b"0]}",
        b"{" * 100_000,
        b'{"a": "' + b"x" * wire.MAX_BYTES + b'"}',
        b'{"a": 1} trailing',
    ],
)
def test_what_is_not_one_flat_finite_object_is_refused(raw: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(raw)


def test_a_text_is_refused_in_one_short_line_that_says_which_bound_it_exceeds() -> None:
    small = wire.Bounds(size=40, depth=2, text=3, items=4)
    for raw, why in {
        b'"abcd"': "a text longer than 3 characters",
        b'{"abcd": 1}': "a text longer than 3 characters",
        b"[1, 2, [3, 4]]": "more than 4 members and items",
        b"[[[]]]": "nested deeper than 2 levels",
        b" " * 41: "longer than 40 bytes",
        b'{"\x1b": 1, "\\u001b": 2}': "Invalid control character",
        b'{"\xc3\xa9": 1, "\xc3\xa9": 2}': r"duplicate key '\xe9'",
    }.items():
        with pytest.raises(wire.JsonError) as refused:
            wire.read_json(raw, small)
        assert why in str(refused.value)
        assert str(refused.value).isprintable()
    assert wire.read_json(b'["[[[", "{{{", {"a": 1}]', small) == [
        "[[[",
        "{{{",
        {"a": 1},
    ]  # brackets in a text nest nothing


def test_what_we_send_ourselves_is_read_back_exactly() -> None:
    message = {"n": 7, "why": "", "worst": 0.25, "list": [1, 2, None], "text": "grün"}
    assert wire.decode(wire.encode(message)) == message


def test_a_claims_text_is_bounded_and_cannot_reach_a_terminal_or_break_a_log() -> None:
    assert wire.clean("\x1b[31mred\x1b[0m\nnext\udcff" + "x" * 5000, 40).startswith("\\x1b[31mred\\x1b[0m\\x0anext")
    assert len(wire.clean("y" * 5000, 40)) == 40
    assert wire.clean("plain words") == "plain words"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.integers(0, 400), st.binary(max_size=3))
def test_whatever_bytes_arrive_are_refused_by_name_or_mean_the_same_when_sent_on(
    document: dict[str, object], at: int, noise: bytes
) -> None:
    raw = json.dumps(document).encode()
    try:
        message = wire.decode(raw[:at] + noise + raw[at:])
    except wire.WireError:
        return
    assert wire.decode(wire.encode(message)) == message
