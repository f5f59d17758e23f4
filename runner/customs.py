"""Customs: the only place of the runner that parses what somebody untrusted wrote (a reply of a model, a source text).

A reply is strict JSON of fixed shape and bounded size. A source is bytes: never imported, never compiled, not even
parsed here (the parser is C code fed by an opponent); it is only cut into tokens, by the tokenizer, on a capped text.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import tokenize
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_SOURCE_BYTES = 256 * 1024
MAX_REPLY_BYTES = 1 << 20
MAX_LINE = 1000
"""Characters. The tokenizer takes time quadratic in a line: 240 kB of opened quotes on one line kept it busy for minutes."""
MAX_TEXT = 240
"""Characters kept of each piece of a candidate's story."""
STORY = ("hypothesis", "evidence", "change", "expected_effect", "risk")

_IGNORED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
_LAYOUT = frozenset({tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER})


class CustomsError(Exception):
    """The reply was refused; the message says why in one line."""


@dataclass(frozen=True)
class Reply:
    """A candidate as its proposer wrote it."""

    source: bytes
    story: dict[str, str]
    """The words of `STORY`, each on one line of at most `MAX_TEXT` characters; absent ones empty."""


def parse_reply(raw: bytes) -> Reply:
    """One JSON object `{"source": ..., "hypothesis": ..., ...}`: nothing unknown, nothing doubled, no NaN."""
    if len(raw) > MAX_REPLY_BYTES:
        raise CustomsError(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
    document = _strict_json(raw)
    if not isinstance(document, dict):
        raise CustomsError("the reply is not a JSON object")
    unknown = sorted(set(document) - {"source", *STORY})
    if unknown:
        raise CustomsError(f"unknown key {one_line(repr(unknown[0]), 60)} in the reply")
    wrong = [key for key, value in document.items() if not isinstance(value, str)]
    if wrong:
        raise CustomsError(f"{wrong[0]}: not a string")
    if not document.get("source", "").strip():
        raise CustomsError("the reply holds no source")
    try:
        source = document["source"].encode("utf-8")
    except UnicodeEncodeError:
        raise CustomsError("source: not text (a lone surrogate)") from None
    return Reply(source, {key: one_line(document.get(key, "")) for key in STORY})


def one_line(text: str, limit: int = MAX_TEXT) -> str:
    """Spaces collapsed, control characters and lone surrogates replaced, cut with an ellipsis."""
    flat = " ".join(text.split())
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def normal_digest(source: bytes) -> str:
    """`sha256:<hex>` of the source's normal form: its tokens, without comments, blank lines and spacing.

    Equal digests mean equal programs. What cannot be cut, or is above `MAX_SOURCE_BYTES`, stands for itself.
    """
    tokens = _tokens(source) if len(source) <= MAX_SOURCE_BYTES else None
    form = b"raw:" + source if tokens is None else b"tokens:" + json.dumps(tokens).encode()
    return "sha256:" + hashlib.sha256(form).hexdigest()


def _tokens(source: bytes) -> list[list[str]] | None:
    """Kind and text of each token; of layout tokens only the kind. None where it is no Python text, or too long a line."""
    try:
        text = source.decode("utf-8-sig")
        if max(map(len, text.split("\n"))) > MAX_LINE:
            return None
        found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return [
        [tokenize.tok_name[token.type], "" if token.type in _LAYOUT else token.string]
        for token in found
        if token.type not in _IGNORED
    ]


def _refuse(text: str) -> NoReturn:
    raise CustomsError(f"the reply holds {text}, which is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise CustomsError("the reply holds a key twice")
    return keys


def _strict_json(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise CustomsError(f"the reply is not JSON: {one_line(str(error), 100)}") from None
