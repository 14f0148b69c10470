"""Compares instructions and registers of compiled CUDA kernels with the number of instructions that memory allows.

    python3 -m compare sass build/release/kernels/CMakeFiles/lockstep_kernels.dir/activation/activation.cu.o \\
        --kernel 'elementwise_kernel<8, 2.*GeluOperation<__nv_bfloat16>' --bytes 4

Reads object files, cubins or programs by `cuobjdump -sass` and `-res-usage` (CUDA's binary utilities), and prints each
kernel that matches: registers, bytes on the stack, and its inner loops that touch global memory. A loop's elements are
the bytes that its vector loads and stores of global memory move, over --bytes, the bytes that the kernel moves per element
in that loop. Instructions outside the main path (tails, checks) are counted, so that the number is an upper bound.

The last columns are for an H100: instructions that a thread may issue per element while memory moves its bytes, with 132
multiprocessors of 4 schedulers, 32 threads per instruction, 1.755 GHz, and 3.35 TB/s. A loop that needs less than that
is limited by memory, if enough bytes are in flight.
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass

from reports.analysis.roofline.counted import H100

TARGETS: list[str] = []


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str

    @property
    def operation(self) -> str:
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0]

    @property
    def moved_bytes(self) -> int:
        """Number of a thread's accesses to global memory: LDG, STG, and generic LD, ST."""
        parts = self.operation.split(".")
        if parts[0] not in ("LDG", "STG", "LD", "ST", "LDGSTS"):
            return 0
        bits = [int(p) for p in parts if p in ("64", "128")]
        narrow = {"U8": 1, "S8": 1, "U16": 2, "S16": 2}
        return bits[0] // 8 if bits else next((narrow[p] for p in parts if p in narrow), 4)

    @property
    def target(self) -> int | None:
        found = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", self.text)
        return int(found.group(1), 16) if found else None


@dataclass(frozen=True)
class Kernel:
    name: str
    registers: int
    stack_bytes: int
    instructions: tuple[Instruction, ...]

    def loops(self) -> list[tuple[Instruction, ...]]:
        """Bodies of loops that contain no other, in the order of the code."""
        spans = {(i.target, i.address) for i in self.instructions if i.target is not None and i.target < i.address}
        inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
        return [tuple(i for i in self.instructions if first <= i.address <= last) for first, last in sorted(inner)]


def tool_output(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"compare sass: {words[0]} is not in PATH; it comes with CUDA's binary utilities (or binutils)")
    if done.returncode != 0:
        sys.exit(f"compare sass: {' '.join(words)} failed: {done.stderr.strip().splitlines()[-1:] or '?'}")
    return done.stdout


def kernels_of(sass: str, usage: str) -> list[Kernel]:
    """From the two outputs of cuobjdump, names still mangled."""
    used = {name: (int(registers), int(stack)) for name, registers, stack in
            re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage)}
    kernels = []
    for part in sass.split("Function : ")[1:]:
        name = part.split()[0]
        lines = re.findall(r"/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;", part)
        instructions = tuple(Instruction(int(at, 16), text) for at, text in lines if not text.startswith("NOP"))
        kernels.append(Kernel(name, *used.get(name, (0, 0)), instructions))
    return kernels


def rows(kernel: Kernel, name: str, element_bytes: float) -> list[str]:
    head = f"{name}: {kernel.registers} registers, {kernel.stack_bytes} bytes of stack, {len(kernel.instructions)} in all"
    lines = [head]
    for loop in kernel.loops():
        moved = sum(i.moved_bytes for i in loop)
        if moved < 8:
            continue
        elements = moved / element_bytes
        special = sum(i.operation.startswith("MUFU") for i in loop)
        lines.append(f"  loop at {loop[0].address:#06x}: {len(loop):5d} instructions, {moved:4d} bytes, {elements:5.1f} elements:"
                     f" {len(loop) / elements:6.1f} per element, {special / elements:.1f} MUFU;"
                     f" allowed {H100.allowed_per_byte * element_bytes:.1f}")
    return lines


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", help="object files, cubins or programs")
    parser.add_argument("--kernel", default=".", help="regular expression that a kernel's name matches")
    parser.add_argument("--bytes", type=float, default=4, help="bytes of global memory that an element takes in a loop")


def run(options: argparse.Namespace) -> None:
    if options.bytes <= 0:
        sys.exit(f"compare sass: --bytes {options.bytes:g}: allowed: more than 0")
    found = False
    for file in options.files:
        kernels = kernels_of(tool_output("cuobjdump", "-sass", file), tool_output("cuobjdump", "-res-usage", file))
        names = tool_output("c++filt", *[k.name for k in kernels]).splitlines() if kernels else []
        for kernel, name in zip(kernels, names):
            if re.search(options.kernel, name):
                found = True
                print("\n".join(rows(kernel, name, options.bytes)))
    if not found:
        sys.exit(f"compare sass: no kernel matches --kernel '{options.kernel}'")
