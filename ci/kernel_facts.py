#!/usr/bin/env python3
"""Prints what ptxas says of the kernels in programs and libraries, a line each, for the stand-in for CUDA's runtime:

    kernel_facts.py FILE...     prints NAME REGISTERS STATIC_SHARED_BYTES LOCAL_BYTES MOST_THREADS, and OFFSET:BYTES of parameters

Reads the cubins in the files, which must not be compressed (nvcc --compress-mode=none); the names of their sections and
attributes are those that `cuobjdump -elf` and `readelf` print. A kernel that is in several files is printed once.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

EM_CUDA = 190
KPARAM_INFO, MAX_THREADS, REGCOUNT, FRAME_SIZE = 0x17, 0x05, 0x2F, 0x11
RESERVED_BYTES = 1024  # at the beginning of a block's shared memory, for the system (compute capability 9.0)
ENTRY = 0x10  # bit in a symbol's st_other: a kernel, and not a function that kernels call
SIZED = 0x04  # format of an attribute: its bytes follow; of others, their two bytes of value


@dataclass
class Kernel:
    name: str
    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    most_threads: int = 1024
    parameters: dict[int, tuple[int, int]] = field(default_factory=dict)  # ordinal: offset and bytes

    def line(self) -> str:
        places = " ".join(f"{offset}:{size}" for _, (offset, size) in sorted(self.parameters.items()))
        return f"{self.name} {self.registers} {self.shared_bytes} {self.local_bytes} {self.most_threads} {places}".rstrip()


@dataclass(frozen=True)
class Section:
    name: str
    data: memoryview
    size: int
    info: int


def text_at(table: memoryview, offset: int) -> str:
    raw = bytes(table[offset:offset + 8192])
    return raw[:raw.index(0)].decode()


def sections_of(elf: memoryview) -> list[Section]:
    """All sections of a 64-bit ELF file."""
    offset, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + k * size) for k in range(count)]
    table = elf[headers[names][4]:headers[names][4] + headers[names][5]]
    nobits = 8
    return [Section(text_at(table, h[0]), elf[h[4]:h[4] + (0 if h[1] == nobits else h[5])], h[5], h[7]) for h in headers]


def attributes_of(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Attributes of a section .nv.info: each is a format, a code, and two bytes of value or of the size of what follows."""
    at = 0
    while at + 4 <= len(data):
        form, code, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == SIZED:
            yield code, data[at:at + size]
            at += size


def kernels_in(elf: memoryview) -> list[Kernel]:
    sections = {section.name: section for section in sections_of(elf)}
    strings = sections[".strtab"].data
    symbols = [(text_at(strings, name), other) for name, _, other, *_ in struct.iter_unpack("<IBBHQQ", sections[".symtab"].data)]
    kernels = {name: Kernel(name) for name, other in symbols if other & ENTRY}
    for code, data in attributes_of(sections[".nv.info"].data):
        if code in (REGCOUNT, FRAME_SIZE):
            symbol, value = struct.unpack("<II", data)
            if kernel := kernels.get(symbols[symbol][0]):
                setattr(kernel, "registers" if code == REGCOUNT else "local_bytes", value)
    for kernel in kernels.values():
        if shared := sections.get(".nv.shared." + kernel.name):
            kernel.shared_bytes = shared.size - RESERVED_BYTES
        if own := sections.get(".nv.info." + kernel.name):
            read_own(kernel, own.data)
    return list(kernels.values())


def read_own(kernel: Kernel, data: memoryview) -> None:
    for code, value in attributes_of(data):
        if code == MAX_THREADS:
            x, y, z = struct.unpack("<III", value)
            kernel.most_threads = x * y * z
        elif code == KPARAM_INFO:  # index, ordinal, offset, and a word whose upper 14 bits are the size
            _, ordinal, offset, word = struct.unpack("<IHHI", value)
            kernel.parameters[ordinal] = offset, word >> 18


def cubins_in(content: bytes) -> Iterator[memoryview]:
    """Cubins within a file: ELF files for CUDA's machine. Each ends before the next at the latest."""
    at = content.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", content, at + 0x12)[0] == EM_CUDA:
            yield memoryview(content)[at:]
        at = content.find(b"\x7fELF", at + 1)


def main() -> None:
    lines = {kernel.line() for path in sys.argv[1:] for elf in cubins_in(Path(path).read_bytes()) for kernel in kernels_in(elf)}
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
