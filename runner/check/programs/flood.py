"""A gigabyte to stdout, another to stderr, without a newline."""

import os

piece = b"x" * (1 << 20)
for _ in range(1 << 10):
    os.write(1, piece)
    os.write(2, piece)
