"""The wire is strict: what a hostile guest may send ends as WireError, whatever it is."""

from __future__ import annotations

import pytest

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
        b"{" * 100_000,
        b'{"a": "' + b"x" * wire.MAX_BYTES + b'"}',
        b'{"a": 1} trailing',
    ],
)
def test_what_is_not_one_flat_finite_object_is_refused(raw: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(raw)


def test_what_we_send_ourselves_is_read_back_exactly() -> None:
    message = {"n": 7, "why": "", "worst": 0.25, "list": [1, 2, None], "text": "grün"}
    assert wire.decode(wire.encode(message)) == message


def test_a_claims_text_is_bounded_and_cannot_reach_a_terminal_or_break_a_log() -> None:
    assert wire.clean("\x1b[31mred\x1b[0m\nnext\udcff" + "x" * 5000, 40).startswith("\\x1b[31mred\\x1b[0m\\x0anext")
    assert len(wire.clean("y" * 5000, 40)) == 40
    assert wire.clean("plain words") == "plain words"
