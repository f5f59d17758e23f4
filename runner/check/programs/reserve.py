# ruff: noqa: T201
"""Reserve 100 TB of addresses, as CUDA does: in ten pieces, for no single hole is that wide. This one must work."""

import mmap

MAP_NORESERVE = 0x4000  # the module knows it from Python 3.13 on
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
pieces = [mmap.mmap(-1, 10 << 40, flags=flags, prot=0) for _ in range(10)]
print("reserved", len(pieces))
