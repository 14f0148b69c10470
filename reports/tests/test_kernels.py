"""Tests kernels against ceilings: groups, sentences, comparisons and warnings, in a world whose shares are known."""
from dataclasses import replace

import pytest

from reports.report import report_of
from reports.analysis.roofline.rooflines import binding_name, ceilings_text, odd_ones, Way
from reports.analysis.roofline.findings import comparison_text, comparisons_of, group_of, ORDER, OTHER, reach_text
from reports.load import load
from reports.tests.kernel_world import (TINY, WORKS, KernelWorld, Work, gpu_world, kernel_failed, kernel_wrong,
                                        without_ceiling)
from reports.tests.world import World, write

ONE = [work for work in WORKS if work.kernel in ("softmax_bwd", "adamw", "gemm_wgrad", "cast")]
SMALL = KernelWorld(works=ONE, dtypes=("f32",), sizes=(1,), threads=(2,), caches=("cold",))
COLD = Way(2, "cold", "host")


@pytest.fixture
def report(tmp_path):
    def make(*record_lists):
        return report_of(load([write(tmp_path / f"k{i}.jsonl", line) for i, line in enumerate(record_lists)]))
    return make


def roofline_of(analysed):
    assert len(analysed.results("kernels")) == 1
    return analysed.results("kernels")[0]


def notes(analysed, level=None):
    return " ".join(note.text for note in analysed.notes if level in (None, note.level))


def test_the_finding_counts_and_names_the_farthest(report):
    findings = report(SMALL.records()).findings
    assert [f.text for f in findings] == [
        "2 of 4 kernels reach 85 % of the ceiling that binds them; the farthest is softmax_bwd f32, N1024_C768, at "
        "41 %, bound by memory."]
    assert findings[0].headline == "CPU (Example CPU 2.6 GHz), measured, 2 threads, cold"
    assert "Bound by memory copy (2), f32 fma (1) and memory triad (1)." in findings[0].why
    assert "GEMM 58 %; softmax, cross-entropy 41 %; optimizer 98 %" in findings[0].why


@pytest.mark.parametrize("number, shares, expected", [
    (1, [0.9], "1 of 1 kernel reaches 85 % of the ceiling that binds it"),
    (1, [0.849], "0 of 1 kernel reach 85 %"),
    (2, [0.85, 0.2], "1 of 2 kernels reaches 85 %"),
])
def test_counts_in_words(report, number, shares, expected):
    roofline = roofline_of(report([SMALL.run(), *SMALL.ceilings(), *SMALL.kernels()[:number]]))
    cases = {case: replace(kernel, share=share) for (case, kernel), share in zip(roofline.timed[COLD].items(), shares)}
    assert reach_text(cases).startswith(expected)


def test_cases_of_one_kernel_are_not_called_kernels(report):
    world = KernelWorld(works=ONE, threads=(2,), caches=("cold",))
    text = report(world.records()).findings[0].text
    assert " of 16 cases (4 kernels in several shapes and dtypes) reach" in text


def test_the_main_way_comes_first_all_threads_and_cold(report):
    world = KernelWorld(works=ONE, dtypes=("f32",))
    analysed = report(world.records())
    assert [f.headline.split("measured, ")[1] for f in analysed.findings] == [
        "2 threads, cold", "1 thread, warm", "2 threads, warm", "1 thread, cold"]
    assert [bool(f.why) for f in analysed.findings] == [True, False, False, False]


def test_wrong_and_failed_kernels_are_noted_and_excluded(report):
    softmax, adamw = (SMALL.kernel(work) for work in ONE if work.kernel in ("softmax_bwd", "adamw"))
    good = SMALL.kernel(ONE[0], "bf16")
    analysed = report([SMALL.run(), kernel_wrong(softmax), kernel_failed(adamw), good])
    assert [kernel.kernel for cases in roofline_of(analysed).timed.values() for kernel in cases.values()] == [ONE[0].kernel]
    errors = notes(analysed, "error")
    assert "1 timed kernel had wrong results and is excluded from every plot and sentence: softmax_bwd f32." in errors
    assert "1 kernel failed and has no times: adamw f32." in errors
    assert "softmax_bwd" not in analysed.findings[0].text


def test_everything_wrong_or_ceilings_only(report):
    bad = report([SMALL.run(), *(kernel_failed(kernel) for kernel in SMALL.kernels())])
    assert bad.findings[0].text == "No kernel here was timed correctly."
    assert report([SMALL.run(), *SMALL.ceilings()]).findings[0].text == "Ceilings only: no kernel was run here, or the time budget ended before the first one."


def test_missing_ceilings_are_said(report):
    some = [without_ceiling(kernel) if kernel["kernel"] == "cast" else kernel for kernel in SMALL.kernels()]
    analysed = report([SMALL.run(), *SMALL.ceilings(), *some])
    assert "2 threads, cold: 1 timed kernel of 4 has no ceiling and no share: cast f32." in notes(analysed, "warning")
    assert "of 3 kernels" in analysed.findings[0].text
    none = report([SMALL.run(), *(without_ceiling(line) for line in some)])
    assert "2 threads, cold: no ceilings were measured for it" in notes(none, "warning")
    assert none.findings[0].text == "No ceiling is known that binds any of 4 kernels."


def test_binding_ceilings_are_named_by_value(report):
    world = KernelWorld(works=[*ONE, TINY], threads=(1,), caches=("cold", "warm"), sizes=(1 / 16,))
    analysed = report(world.records())
    roofline = roofline_of(analysed)
    found = roofline.ceilings[1].all
    named = {(case.kernel, case.dtype, way.cache): binding_name(kernel, found)
             for way, cases in roofline.timed.items() for case, kernel in cases.items()}
    assert named["adamw", "f32", "cold"] == "memory triad" and named["adamw", "f32", "warm"] == "L2 triad"
    assert named["gemm_wgrad", "bf16", "cold"] == "bf16 fma" and named["clip_factor", "f32", "cold"] == "launch"
    kernel = next(iter(roofline.timed[Way(1, "cold", "host")].values()))
    assert binding_name(replace(kernel, ceiling_us=kernel.ceiling_us * 1.5), found) == kernel.bound, "not guessed"
    assert binding_name(replace(kernel, bound=None, ceiling_us=None), found) == "–"


def test_ceilings_in_words(report):
    text = ceilings_text(roofline_of(report(SMALL.records())).ceilings[2])
    assert text == ("bandwidth 420 to 660 GB/s in L1, 148 to 192 GB/s in L2, 42 to 56 GB/s in L3 and 17 to 19.9 GB/s "
                    "from memory; arithmetic 2.9 to 5.8 TFLOP/s in bf16 and 302 to 336 GFLOP/s in f32; launch 1.6 µs")


def test_warm_cold_and_threads_are_compared_case_by_case(report):
    world = KernelWorld(works=ONE, dtypes=("f32",), sizes=(1 / 16,), noise=0.0)
    roofline = roofline_of(report(world.records()))
    comparisons = comparisons_of(roofline)
    warm = comparisons["caches"][0]
    assert [c.name for c in comparisons["caches"]] == ["1 thread", "2 threads"]
    assert [c.name for c in comparisons["threads"]] == ["warm caches", "cold caches"]
    expected = {work.kernel: _time(work, "cold") / _time(work, "warm") for work in ONE}
    assert {pair.case.kernel: pair.ratio for pair in warm.pairs} == pytest.approx(expected, rel=1e-3)
    assert [pair.ratio for pair in warm.pairs] == sorted((pair.ratio for pair in warm.pairs), reverse=True)
    assert comparison_text(warm) == ("warm over cold: 5.6 times the speed in the median, from 1 times "
                                     "(gemm_wgrad f32, N64_C768) to 5.9 times (adamw f32, N64_C768)")
    assert all(pair.ratio == pytest.approx(2, rel=1e-3) for pair in comparisons["threads"][1].pairs
               if pair.case.kernel == "gemm_wgrad")


def _time(work, cache):
    return KernelWorld(noise=0.0).kernel(work, "f32", 1 / 16, 1, cache)["stats"]["median"]


def test_nothing_to_compare_gives_nothing(report):
    assert comparisons_of(roofline_of(report(SMALL.records()))) == {"caches": [], "threads": []}
    assert "nothing was timed with warm caches" in notes(report(SMALL.records()))


def test_machines_builds_devices_and_bases_are_never_in_one_roofline(report):
    other = World().run()["machine"] | {"fingerprint": "ffff", "cpu": "Other CPU"}
    worlds = [SMALL, replace(SMALL, run_name="b", run_fields={"machine": other}),
              replace(SMALL, run_name="c", run_fields={"basis": "simulated"}),
              replace(SMALL, run_name="d", run_fields={"git": {"revision": "f" * 40, "dirty": False}}),
              gpu_world(works=ONE, dtypes=("f32",), sizes=(1,))]
    analysed = report(*(world.records() for world in worlds))
    assert len(analysed.results("kernels")) == 5
    for result in analysed.results("kernels"):
        kernels = result.lines
        assert len({(k.device, k.basis, k.run.machine.cpu, k.run.build) for k in kernels}) == 1
    names = [result.name for result in analysed.results("kernels")]
    assert len(set(names)) == 5 and sum("simulated" in name for name in names) == 1
    simulated = [f for f in analysed.findings if f.badge]
    assert len(simulated) == 1 and simulated[0].badge == "simulated"
    text = notes(analysed)
    assert "come from 2 machines" in text and "come from 2 builds" in text and "4 of 32 kernels are simulated" in text
    other_name = next(result.name for result in analysed.results("kernels") if "Other CPU" in result.name)
    assert "machine 2" in other_name and "machine 2 is Other CPU" in text


def test_the_latest_of_equal_kernels_counts_with_its_own_ceilings(report):
    later = replace(SMALL, run_name="later", speed=0.5, run_fields={"started": "2026-03-02T12:00:00Z"})
    analysed = report(later.records(), SMALL.records())
    roofline = roofline_of(analysed)
    assert {kernel.run.run for kernel in roofline.timed[COLD].values()} == {"later"}
    assert roofline.ceilings[2].value("copy", "memory") == pytest.approx(0.5 * 11.2 * 2 ** 0.6)
    text = notes(analysed)
    assert "4 kernels of earlier runs are in the tables only" in text and len(roofline.lines) == 8
    assert "the runs measured different ceilings, by up to 2 times" in text and "of 2 days" in text


@pytest.mark.parametrize("change, expected", [
    ({"checked": False}, "The results of 4 timed kernels were not checked"),
    ({"cores": [1, 1]}, "In 4 timed kernels two threads were seen on one core"),
    ({"threads": 32}, "More threads than cores: 32 threads on 16 cores"),
    ({"share": 1.4}, "The share of 4 timed kernels is not its ceiling's time over its median"),
])
def test_doubts_are_said(report, change, expected):
    assert expected not in notes(report(SMALL.records()))
    assert expected in notes(report([SMALL.run(), *SMALL.ceilings(), *({**k, **change} for k in SMALL.kernels())]))


def test_faster_than_the_ceiling_is_said(report):
    fast = SMALL.kernel(Work("adamw", 15, 28, 1.5))
    analysed = report([SMALL.run(), *SMALL.ceilings(), fast])
    assert "1 of 1 kernel reaches 85 % of the ceiling that binds it (1 of these is above 105 %: that was not the" in (
        analysed.findings[0].text)
    assert "1 timed kernel is faster than the ceiling that should bind it, adamw f32" in notes(analysed, "warning")


def test_ceilings_that_cannot_be_are_said(report):
    analysed = report([SMALL.run(), *KernelWorld().ceilings(), *SMALL.kernels()])
    assert odd_ones(roofline_of(analysed).ceilings) == []
    broken = [{**ceiling, "value": 5.0} if (ceiling["threads"], ceiling["name"], ceiling["level"]) == (2, "copy", "l3") else ceiling
              for ceiling in KernelWorld().ceilings()]
    text = report([SMALL.run(), *broken, *SMALL.kernels()]).findings[0].caveat
    assert "L3 copy of 2 threads (5) lower than with 1 (21 GB/s)" in text
    assert "L3 copy (5) below memory copy (17 GB/s) of 2 threads" in text


def test_holes_and_kernels_without_arithmetic_are_said(report):
    world = KernelWorld(works=ONE, dtypes=("f32",), sizes=(1,), threads=(1,))
    kernels = [kernel for kernel in world.kernels() if (kernel["kernel"], kernel["cache"]) != ("adamw", "warm")]
    text = notes(report([world.run(), *world.ceilings(), *kernels]))
    assert "1 case of 4 was not timed correctly in every way that others were: adamw f32" in text
    assert "no arithmetic is counted in cast: not in the roofline plot" in text


def test_collectives_and_kernels_are_kept_apart(report):
    world = World(run_name="rows")
    empty = World(run_name="empty", run_fields={"program": "broadcast_perf"})
    analysed = report([world.run(), *world.sweep(["ring", "double_tree"])], SMALL.records(), [empty.run()])
    assert [run.run for run in analysed.parts["kernels"].records.runs] == ["kernels-1"]
    assert [run.run for run in analysed.parts["collectives"].records.runs] == ["rows", "empty"]
    assert notes(analysed).count("left no rows") == 1
    assert [f.headline.split(",")[0] for f in analysed.findings] == ["All-reduce", "CPU (Example CPU 2.6 GHz)"]


def test_every_kernel_of_the_world_has_a_family():
    assert {group_of(work.kernel) for work in WORKS} == set(ORDER) - {OTHER}
    assert group_of("sum_of_squares") == group_of("adamw") != group_of("reduction") == group_of("cast")
    assert group_of("residual_layernorm_bwd") == group_of("rmsnorm_fwd") != group_of("residual_add")
    assert group_of("something_new") == OTHER


def test_implementations_side_by_side_are_different_cases(report):
    kernels = [SMALL.kernel(ONE[0], implementation=name) for name in ("onednn", "packed")]
    roofline = roofline_of(report([SMALL.run(), *kernels]))
    assert {case.label for cases in roofline.timed.values() for case in cases} == {
        f"{ONE[0].kernel} f32 (onednn)", f"{ONE[0].kernel} f32 (packed)"}


def test_an_implementation_that_was_chosen_is_no_other_case(report):
    chosen = ((1, "onednn"), (2, "packed"))
    kernels = [SMALL.kernel(ONE[0], threads=threads, implementation=name) for threads, name in chosen]
    roofline = roofline_of(report([SMALL.run(), *kernels]))
    assert [{case.label for case in cases} for cases in roofline.timed.values()] == [{f"{ONE[0].kernel} f32"}] * 2


# Limits of a finding stand with it, for its own way of timing.

def left_out(record):
    return {**kernel_failed(record, None), "status": "left_out", "checked": False}


def test_what_a_time_budget_left_out_is_counted_with_the_finding_and_in_a_warning(report):
    kernels = SMALL.kernels()
    analysed = report([SMALL.run(), *SMALL.ceilings(), *kernels[:3], left_out(kernels[3])])
    finding, = analysed.findings
    assert finding.caveat == "The time budget ended before 1 of 4 cases."
    assert f"1 of 4 kernels to be timed (kernel, shape, dtype, way) were skipped, because the time budget had run out: " \
           f"{kernels[3]['kernel']} f32." in notes(analysed, "warning") and "failed" not in notes(analysed)


def test_contradictory_ceilings_stand_with_the_findings_that_refer_to_them(report):
    world = KernelWorld(works=ONE, dtypes=("f32",), sizes=(1,), caches=("cold",))
    ceilings = world.ceilings()
    for ceiling in ceilings:
        if (ceiling["name"], ceiling["level"], ceiling["threads"]) == ("copy", "l2", 2):
            ceiling["value"] = 5.0
    two, single = report([world.run(), *ceilings, *world.kernels()]).findings
    assert "2 threads" in two.headline and "L2 copy of 2 threads (5) lower than with 1 (74 GB/s)" in two.caveat
    assert "1 thread" in single.headline and single.caveat == ""


def test_few_samples_stand_with_the_finding(report):
    finding, = report(replace(SMALL, samples=3).records()).findings
    assert finding.caveat == "4 of 4 cases have fewer than 10 samples."


def test_a_peak_that_two_dtypes_share_has_the_kernels_own_name(report):
    world = KernelWorld(works=[work for work in ONE if work.kernel == "gemm_wgrad"], dtypes=("bf16",), sizes=(1,), threads=(1,),
                        caches=("cold",))
    ceilings = world.ceilings()
    for ceiling in ceilings:
        if ceiling["unit"] == "gflops":
            ceiling["value"] = 168.0
    kernel = world.kernels()[0]
    kernel |= {"bound": "compute", "ceiling_us": kernel["flops"] / 168e3}
    roofline = roofline_of(report([world.run(), *ceilings, kernel]))
    found = [line for each in roofline.ceilings.values() for line in each.all]
    assert binding_name(roofline.lines[0], found) == "bf16 fma"
