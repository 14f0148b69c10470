"""The host's part of CUDA sources, as nvcc compiled it.

nvcc accepts a call of a __device__ function from a host template. On the host such a function only calls exit(1): the
program ends without a word when it gets there. No code of ours calls exit in these sources, so none may refer to it.
"""

import subprocess
from pathlib import Path

import pytest
from conftest import find_binaries


def objects() -> list[Path]:
    folder = find_binaries()
    return sorted(folder.parent.glob("**/*.cu.o")) if folder else []


def calls_exit(file: Path) -> bool:
    undefined = subprocess.run(["nm", "-u", file], capture_output=True, text=True, check=True).stdout
    return "exit" in undefined.split()


@pytest.mark.skipif(not objects(), reason="the build has no CUDA sources")
def test_no_host_code_calls_a_function_of_the_device():
    assert [file.name for file in objects() if calls_exit(file)] == []


def test_a_call_of_exit_is_seen(tmp_path):
    source = tmp_path / "calls.c"
    source.write_text("void exit(int); void f(void) { exit(1); }")
    subprocess.run(["cc", "-c", source, "-o", tmp_path / "calls.o"], check=True)
    assert calls_exit(tmp_path / "calls.o")
