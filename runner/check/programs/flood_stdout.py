"""Ten gigabytes to stdout, without a newline."""

import os

piece = b"x" * (1 << 20)
for _ in range(10 << 10):
    os.write(1, piece)
