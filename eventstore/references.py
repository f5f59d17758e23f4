"""Which digests of an event name a blob: the rest (bundle, image, code) are identities of things not stored as one.

Only an event's own fields count: what stands inside a free-form field (settings, environment, claims) is no reference.
"""

from __future__ import annotations

from collections.abc import Mapping

BLOB_FIELDS = frozenset({"source", "prompt", "reply", "log", "winner_source"})
"""Fields that hold the digest of one blob, or nothing."""
BLOB_MAPS = frozenset({"manifest"})
"""Fields that map names to digests of blobs."""
NOT_BLOBS = frozenset({"bundle", "normal", "decision_code"})
"""Fields that hold a digest of something that is not a blob."""


def blobs_named(payload: Mapping[str, object]) -> set[str]:
    """Digests of the blobs that an event's parsed payload names."""
    named = {value for field in BLOB_FIELDS if isinstance(value := payload.get(field), str)}
    for field in BLOB_MAPS:
        if isinstance(files := payload.get(field), Mapping):
            named.update(digest for digest in files.values() if isinstance(digest, str))
    return named
