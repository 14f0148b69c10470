"""compare/counts.py and the sums that it shares with the report's page, on made-up counts."""

import argparse

import pytest

from compare import counts
from reports.analysis.roofline.counted import H100, H200, analyse_counts
from reports.load import load
from reports.tests.kernel_world import kernel_count
from reports.tests.world import World, write


@pytest.fixture
def made(tmp_path):
    def make(*lines):
        world = World(run_name="counts", run_fields={"basis": "simulated", "program": "ptx_check"})
        return write(tmp_path / "counts.jsonl", [world.run(), *(kernel_count("counts", **fields) for fields in lines)])
    return make


def test_instructions_are_held_against_memory(made):
    """132 multiprocessors x 128 x 1.755 GHz over 3.35 TB/s are 8.85 thread instructions a byte."""
    assert H100.allowed_per_byte == pytest.approx(8.85, abs=0.005) and H200.allowed_per_byte == pytest.approx(6.18, abs=0.005)
    (found,) = analyse_counts(load([made({})]))
    (case,) = found.judged
    assert case.bytes_per_element == 8 and case.allowed(H100) == pytest.approx(70.8, abs=0.05)
    assert case.excess() == pytest.approx(90 / 70.8, abs=0.001) and case.ceiling(H200) == pytest.approx(49.4 / 90, abs=0.001)
    assert (case.moved(), case.gaps(), case.conflicts(), case.tensor_excess()) == (1, 1, None, None)


def test_special_functions_count_for_eight_each(made):
    (found,) = analyse_counts(load([made({"sass": {"instructions": 65536 * 10.0, "special": 65536 * 4.0}})]))
    assert found.cases[0].sass == 32


def test_entries_of_a_case_are_added_and_others_are_not_judged(made):
    (found,) = analyse_counts(load([made({}, {"entry": "finish"}, {"shape": "N64", "elems": 64}, {"kernel": "gemm", "flops": 1e9, "multiply_adds": 5},
                                         {"kernel": "without", "sass": None})]))
    (case,) = found.judged
    assert case.sass == 180 and len(found.cases) == 4
    assert "0 of 1 kernel that memory should limit" in found.text and "scale f32 (2.54)" in found.text


def test_a_kernel_is_printed(made, capsys):
    counts.run(argparse.Namespace(files=[made({})], kernel="^scale f32$"))
    printed = capsys.readouterr().out
    assert "scale f32  N65536  10.50  90.00    70.81" in printed and "scale_kernel<4>  64x1x1" in printed and "8 x 256" in printed
    with pytest.raises(SystemExit, match="no kernel's counts match --kernel 'absent'"):
        counts.run(argparse.Namespace(files=[made({})], kernel="absent"))
