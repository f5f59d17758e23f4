# ruff: noqa: T201
"""The honest one: a fixed computation whose answer is known. It must work right after every hostile program."""

import hashlib

digest = b"assay"
for _ in range(5000):
    digest = hashlib.sha256(digest).digest()
print(digest.hex())
