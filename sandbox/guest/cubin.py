"""What a cubin says of its kernel: registers and local memory per thread, read from the ELF file that ptxas wrote.

A driver tells both only after it has loaded the kernel, and a build container has no driver. NVIDIA documents no format; the two
attributes read here are those that cuobjdump prints as REG and STACK (a test compares).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

REGCOUNT, FRAME_SIZE = 0x2F, 0x11
"""Attributes of section `.nv.info`: pairs (index of a function's symbol, value)."""
SIZED = 4
"""Format of an attribute that carries its value's size; every other one has its value in place of the size."""
SYMTAB = 2


class CubinError(Exception):
    """Not a cubin, or one of a form that is not known here."""


def resources(cubin: bytes, name: str) -> tuple[int, int]:
    """(registers, bytes of stack frame) per thread of the kernel `name`; spilled registers lie in that frame."""
    try:
        sections = list(_sections(cubin))
        info = next(body for label, _, _, body in sections if label == ".nv.info")
        symbols = next(body for _, kind, _, body in sections if kind == SYMTAB)
        strings = sections[next(link for _, kind, link, _ in sections if kind == SYMTAB)][3]
        found: dict[int, int] = {}
        for attribute, index, value in _attributes(info):
            at = struct.unpack_from("<I", symbols, 24 * index)[0]
            if _text(strings, at) == name:
                found[attribute] = value
        return found[REGCOUNT], found.get(FRAME_SIZE, 0)
    except (struct.error, StopIteration, KeyError, IndexError, ValueError) as error:
        raise CubinError(f"{name}: {type(error).__name__}") from None


def _sections(elf: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    """(name, type, link, body) of each section of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise CubinError("not a 64-bit ELF file")
    start = struct.unpack_from("<Q", elf, 40)[0]
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQI", elf, start + size * n) for n in range(count)]
    labels = elf[heads[names][4] : heads[names][4] + heads[names][5]]
    for label, kind, _, _, offset, length, link in heads:
        yield _text(labels, label), kind, link, elf[offset : offset + length]


def _attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol, value) of those that are of interest."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == SIZED and attribute in (REGCOUNT, FRAME_SIZE):
            yield (attribute, *struct.unpack_from("<II", info, at + 4))
        at += 4 + (size if form == SIZED else 0)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()
