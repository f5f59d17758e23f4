"""From a fact to the exact bytes that are stored and hashed ("canonical v1").

Keys sorted, no spaces, UTF-8, floats as Python's shortest form. It is not RFC 8785 and need not be: the hash covers the
stored bytes and never a second encoding. What would not survive every JSON reader is refused, not bent: NaN,
infinities, integers from 2**53 up, keys that are not text, anything that is not JSON.
"""

from __future__ import annotations

import json
import math

from pydantic import ValidationError

from eventstore.errors import BadInput
from eventstore.facts import FACT, Fact

MAX_PAYLOAD = 16 * 1024 * 1024
"""Bytes of one event. Larger bodies are blobs."""
MAX_DEPTH = 64
"""Nesting of one payload: parts of it were said by a guest."""


def encode(fact: Fact) -> bytes:
    """Canonical JSON of a fact, UTF-8. Raises BadInput for what cannot be stored, or could not be read back."""
    body = fact.model_dump(mode="python")
    _check(body, fact.kind, 0)
    try:
        payload = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
        FACT.validate_json(payload)
    except UnicodeEncodeError as error:
        raise BadInput(f"{fact.kind}: text with a lone surrogate cannot be stored") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"{fact.kind}: would not be read back: {where}: {first['msg']}") from error
    if len(payload) > MAX_PAYLOAD:
        raise BadInput(f"{fact.kind}: {len(payload)} bytes, more than the {MAX_PAYLOAD} of one event; store a blob")
    return payload


def _check(value: object, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadInput(f"{where}: nested deeper than {MAX_DEPTH}")
    match value:
        case None | bool() | str():
            return
        case int():
            if abs(value) >= 2**53:
                raise BadInput(f"{where}: integer {value} is not below 2**53; store it as text")
        case float():
            if not math.isfinite(value):
                raise BadInput(f"{where}: {value} is not a finite number")
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{where}[{index}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise BadInput(f"{where}: key {key!r} is not text")
                _check(item, f"{where}.{key}", depth + 1)
        case _:
            raise BadInput(f"{where}: {type(value).__name__} is not JSON")
