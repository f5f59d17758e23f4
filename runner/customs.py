"""Customs: the only place of the runner that parses what somebody untrusted wrote (a reply of a model, a source text).

A reply is strict JSON of fixed shape and bounded size. A source is bytes: never imported, never compiled, not even
parsed here (the parser is C code fed by an opponent); it is only cut into tokens, by the tokenizer, on a capped text.
"""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from dataclasses import dataclass

from ops import wire

MAX_SOURCE_BYTES = 256 * 1024
MAX_REPLY_BYTES = 1 << 20
REPLY = wire.Bounds(size=MAX_REPLY_BYTES, text=MAX_REPLY_BYTES, items=64)
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
    try:
        document = wire.read_json(raw, REPLY)
    except wire.JsonError as error:
        raise CustomsError(f"the reply is not JSON: {one_line(str(error), 100)}") from None
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
    return Reply(document["source"].encode(), {key: one_line(document.get(key, "")) for key in STORY})


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
