"""kernel_facts.py on cubins that ptxas makes, against what ptxas says of them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parent
PTXAS = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 to, .param .u32 count, .param .align 8 .b8 more[40])
.maxntid 256, 1, 1
{{
  .shared .align 4 .b8 kept[272];
  .reg .u64 %a; .reg .u32 %b, %c;
  ld.param.u64 %a, [to];
  ld.param.u32 %b, [count];
  st.shared.u32 [kept], %b;
  bar.sync 0;
  ld.shared.u32 %c, [kept + 4];
  st.global.u32 [%a], %c;
  ret;
}}
"""


def facts(*files: Path) -> list[str]:
    return subprocess.run([CI / "kernel_facts.py", *files], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")
def test_facts_are_those_that_ptxas_prints(tmp_path):
    program = tmp_path / "program"
    content, registers = b"\x7fELF" + bytes(60), {}
    for name in ("first", "second"):
        ptx, cubin = tmp_path / f"{name}.ptx", tmp_path / f"{name}.cubin"
        ptx.write_text(PTX.format(name=name))
        said = subprocess.run([PTXAS, "-v", "-arch=sm_90", ptx, "-o", cubin], capture_output=True, text=True, check=True).stderr
        assert "272 bytes smem" in said
        registers[name] = int(said.split("Used ")[1].split()[0])
        content += b"padding" + cubin.read_bytes()
    program.write_bytes(content)
    assert facts(program, program) == [f"{name} {registers[name]} 272 0 256 0:8 8:4 16:40" for name in ("first", "second")]


def test_a_file_without_kernels_has_no_facts():
    assert facts(Path(sys.executable)) in ([], [""])
