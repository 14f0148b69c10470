"""compare/sass.py on text as cuobjdump prints it."""

import pytest

from compare import sass

SASS = """
\t\tFunction : _Z4copyPf
        /*0000*/                   LDC R1, c[0x0][0x28] ;          /* 0x00000a00ff017b82 */
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @P1  BRA 0x60 ;
        /*0030*/                   MUFU.EX2 R8, R8 ;
        /*0040*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0050*/              @!P0 BRA 0x10 ;
        /*0060*/                   NOP ;
        /*0070*/                   EXIT ;
        /*0080*/                   BRA 0x80 ;
\t\tFunction : _Z5emptyv
        /*0000*/                   EXIT ;
"""
USAGE = """
 Function _Z4copyPf:
  REG:40 STACK:8 SHARED:0 LOCAL:0
 Function _Z5emptyv:
  REG:4 STACK:0 SHARED:0 LOCAL:0
"""


def test_a_kernel_has_its_registers_and_inner_loops():
    copy, empty = sass.kernels_of(SASS, USAGE)
    assert (copy.name, copy.registers, copy.stack_bytes) == ("_Z4copyPf", 40, 8)
    (loop,) = copy.loops()
    assert [i.operation for i in loop] == ["LDG.E.128", "BRA", "MUFU.EX2", "STG.E.U16", "BRA"]
    assert [i.moved_bytes for i in loop] == [16, 0, 0, 2, 0]
    assert empty.loops() == []


def test_a_loop_that_contains_another_is_no_inner_one():
    outer = SASS.replace("/*0070*/                   EXIT", "/*0070*/              @P2  BRA 0x0")
    (loop,) = sass.kernels_of(outer, USAGE)[0].loops()
    assert loop[0].address == 0x10


def test_instructions_are_held_against_memory():
    (_, line) = sass.rows(sass.kernels_of(SASS, USAGE)[0], "copy", 9)
    assert "5 instructions,   18 bytes,   2.0 elements:    2.5 per element, 0.5 MUFU; allowed 79.7" in line


def test_a_tool_that_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match="cuobjdump is not in PATH"):
        sass.tool_output("cuobjdump", "-sass", "x.o")
