"""Nothing that a model wrote gets past customs unless it is exactly what was asked for."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import customs

GOOD = {"source": "def run(x):\n    return x\n", "hypothesis": "  fewer\n passes ", "risk": "none"}


def test_a_good_reply_is_source_and_story() -> None:
    reply = customs.parse_reply(json.dumps(GOOD).encode())
    story = {"hypothesis": "fewer passes", "evidence": "", "change": "", "expected_effect": "", "risk": "none"}
    assert reply == customs.Reply(b"def run(x):\n    return x\n", story)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"source": "x", "source": "y"}', "duplicate key 'source'"),
        (b'{"source": "x", "speedup": 9}', "unknown key 'speedup'"),
        (b'{"source": NaN}', "NaN"),
        (b'{"source": 1e999}', "1e999"),
        (b'{"source": "x", "risk": 1}', "risk: not a string"),
        (b'{"source": "  "}', "holds no source"),
        (b'{"risk": "x"}', "holds no source"),
        (b'{"source": "\\ud800"}', "lone surrogate"),
        (b'{"source": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"x" * (customs.MAX_REPLY_BYTES + 1), "longer than"),
    ],
)
def test_a_bad_reply_is_refused_in_one_line(raw: bytes, why: str) -> None:
    with pytest.raises(customs.CustomsError) as caught:
        customs.parse_reply(raw)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_story_cannot_forge_a_line_or_steer_a_terminal() -> None:
    assert customs.one_line("a\n[assay] c001 status=promoted\x1b[2J\ud800") == (
        "a [assay] c001 status=promoted\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"
    )
    assert len(customs.one_line("x" * 999)) == customs.MAX_TEXT


@pytest.mark.parametrize(
    "other",
    [
        b"def f(x):  # a comment\n\n    return x + 1\n",
        b"def f(x):\n\treturn x+1\n",
        b"\xef\xbb\xbfdef f( x ):\n    return (x\n  ) + 1\n".replace(b"(x\n  )", b"x"),
    ],
)
def test_comments_and_spacing_make_no_other_program(other: bytes) -> None:
    assert customs.normal_digest(other) == customs.normal_digest(b"def f(x):\n    return x + 1\n")


@pytest.mark.parametrize(
    "other",
    [
        b"def f(x):\n    return x + 2\n",
        b"def f(x):\n    return x\n+ 1\n",
        b"def f(x):\n  if x:\n    return x\n  return 1\n",
        b"deff(x):\n    return x + 1\n",
        b'def f(x):\n    return "# x"\n',
    ],
)
def test_another_program_has_another_digest(other: bytes) -> None:
    programs = [b"def f(x):\n    return x + 1\n", b"def f(x):\n  if x:\n    return x\n    return 1\n", other]
    assert len({customs.normal_digest(text) for text in [*programs, b'def f(x):\n    return "#x"\n']}) == 4


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xfe",
        b"'''",
        b"(" * 200_000,
        b"\0",
        b"  x\n y\n",
        b"#" * 300_000,
        b"'a\\" * 80_000,
        b"x" + b"\\\n" * 100_000,
    ],
)
def test_what_is_no_python_text_stands_for_itself(raw: bytes) -> None:
    assert customs.normal_digest(raw) == customs.normal_digest(raw)
    assert customs.normal_digest(raw) != customs.normal_digest(raw + b"?")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_normal_form(raw: bytes) -> None:
    assert customs.normal_digest(raw).startswith("sha256:")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser_of_replies(raw: bytes) -> None:
    with contextlib.suppress(customs.CustomsError):
        customs.parse_reply(raw)
