"""Tests the GPU script without a GPU: fake programs are in a folder as made by ci/gpu_build.sh."""

import os
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from gate.ab_test import is_alive

CI = Path(__file__).resolve().parent
STEPS = """\
# name | likely/limit | needs | command
device | 1/5 | -    | {B}/tests/device
hangs  | 1/1 | gpu  | {B}/bin/hangs
fails  | 1/5 | gpu  | {B}/bin/fails -e 8 --filter=*a* {O}/fails.jsonl
needs  | 1/5 | gpu  | {B}/bin/needs
script | 1/5 | gpu python | {python} {S}/../not_there.py
last   | 1/5 | gpu  | {B}/bin/last
"""
NO_GPU = """echo 'no CUDA device: no NVIDIA driver is loaded'; echo '[  PASSED  ] 0 tests.'"""


class Bundle:
    def __init__(self, folder: Path):
        self.folder, self.out, self.empty = folder / "bundle", folder / "out", folder / "empty"
        self.steps = folder / "steps.txt"
        self.steps.write_text(STEPS)
        self.environment = {"STEPS_FILE": str(self.steps), "CUDA_FOLDERS": str(self.empty),
                            "PYTHON": "/usr/bin/python3"}
        for name in ("bin", "tests", "tools"):
            (self.folder / name).mkdir(parents=True)
        self.with_tools = f"{self.folder}/tools:{os.environ['PATH']}"
        (self.folder / "needs.txt").write_text("bin/needs libneeded.so.7 libother.so.1\nbin/last\n")
        self.program("tests/device", "echo fine")
        self.program("bin/hangs", "echo beginning; sleep 60 & wait")
        self.program("bin/fails", 'echo "arguments: $*"; exit 4')
        self.program("bin/needs", 'echo "path: $LD_LIBRARY_PATH"')
        self.program("bin/last", "echo the last one")

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run(self, *steps: str, bundle: Path | None = None, **environment: str):
        command = [CI / "gpu_check.sh", bundle or self.folder, self.out, *steps]
        return subprocess.run(command, capture_output=True, text=True, timeout=60,
                              env={**os.environ, **self.environment, **environment})

    def log(self) -> str:
        return (self.out / "gpu_check.log").read_text()


@pytest.fixture
def bundle(tmp_path):
    return Bundle(tmp_path)


def table_of(text: str) -> dict[str, str]:
    """The summary's results by step, in its order."""
    rows = text[text.rindex("\nstep "):].splitlines()[2:]
    return {row.split()[0]: row.split(maxsplit=2)[2] for row in rows[:rows.index("")]}


def test_steps_run_in_order_and_go_on_after_one_that_hangs_or_fails(bundle):
    done = bundle.run()
    table = table_of(done.stdout)
    assert list(table) == ["device", "hangs", "fails", "needs", "script", "last"]
    assert table["device"] == table["last"] == "ok"
    assert table["hangs"] == "killed: it took more than 1 s"
    assert table["fails"] == "failed with status 4"
    assert re.fullmatch("left out: lib(needed.so.7|other.so.1) was not found", table["needs"])
    assert table["script"] == "failed with status 2"
    assert done.returncode == 1
    assert "3 of 6 steps failed" in done.stdout
    assert "beginning" in bundle.log() and "the last one" in bundle.log()


def test_nothing_of_a_hanging_program_stays(bundle):
    bundle.program("bin/hangs", f"echo $$ >{bundle.folder}/pid; sleep 61 & echo $! >>{bundle.folder}/pid; wait")
    bundle.run("hangs")
    for pid in (bundle.folder / "pid").read_text().split():
        assert not is_alive(int(pid))


def test_patterns_in_commands_are_not_files_and_places_are_filled_in(bundle):
    bundle.run("fails")
    assert re.search(r"arguments: -e 8 --filter=\*a\* /\S+/fails.jsonl\n", bundle.log())


def test_without_a_gpu_it_comes_to_its_end_and_says_so_in_one_line(bundle):
    bundle.program("tests/device", NO_GPU)
    done = bundle.run()
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].endswith("nothing ran on a GPU: no CUDA device: no NVIDIA driver is loaded")
    assert set(table_of(done.stdout).values()) == {"left out: no CUDA device: no NVIDIA driver is loaded"}
    assert "the last one" not in bundle.log()


def test_all_well_is_status_0_and_only_what_is_named_runs(bundle):
    done = bundle.run("device", "last")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(table_of(done.stdout)) == ["device", "last"]


def test_libraries_are_found_in_cudas_own_folder_and_then_in_python_packages(bundle, tmp_path):
    site, cuda = tmp_path / "site-packages", tmp_path / "cuda"
    for folder, library in (("cu13", "libneeded.so.7"), ("other", "libother.so.1")):
        (site / "nvidia" / folder / "lib").mkdir(parents=True)
        (site / "nvidia" / folder / "lib" / library).touch()
    done = bundle.run("needs", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stdout
    assert f"libneeded.so.7: {site}/nvidia/cu13/lib (Python)" in done.stdout
    folders = re.search("path: (.*)", bundle.log())[1].split(":")
    assert folders[:3] == [f"{bundle.folder}/lib", f"{site}/nvidia/cu13/lib", f"{site}/nvidia/other/lib"]
    (cuda / "lib64").mkdir(parents=True)
    (cuda / "lib64/libneeded.so.7").touch()
    done = bundle.run("needs", PYTHONPATH=str(site), CUDA_FOLDERS=str(cuda))
    assert f"libneeded.so.7: {cuda}/lib64 (CUDA)" in done.stdout


def test_an_old_nccl_leaves_steps_out(bundle, tmp_path):
    cuda = tmp_path / "cuda/lib64"
    cuda.mkdir(parents=True)
    (cuda / "libnccl.so.2").write_bytes(b"\0\1NCCL version 2.28.9+cuda13.0\0")
    (bundle.folder / "needs.txt").write_text("bin/last libnccl.so.2\n")
    bundle.steps.write_text("old | 1/5 | nccl>=2.30 | {B}/bin/last\nnew | 1/5 | nccl>=2.9 | {B}/bin/last\n")
    table = table_of(bundle.run(CUDA_FOLDERS=str(tmp_path / "cuda")).stdout)
    assert table == {"old": "left out: NCCL is 2.28.9; allowed: 2.30 or newer", "new": "ok"}


def test_a_library_that_a_program_runs_without_leaves_nothing_out(bundle):
    (bundle.folder / "needs.txt").write_text("bin/last libneeded.so.7?\n")
    done = bundle.run("last")
    assert "libneeded.so.7: not found" in done.stdout and table_of(done.stdout) == {"last": "ok"}


def test_a_step_that_finds_no_library_when_it_needs_one_is_left_out(bundle):
    bundle.program("bin/last", "echo 'last: cuBLASLt cannot be opened (add its folder to LD_LIBRARY_PATH): x'; exit 2")
    assert table_of(bundle.run("last").stdout) == {"last": "left out: cuBLASLt was not found"}


def test_the_newest_nccl_is_taken(bundle, tmp_path):
    for place, version in (("cuda/lib64", "2.9.1"), ("site/nvidia/nccl/lib", "2.30.1"), ("site/torch/lib", "2.28.9")):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "libnccl.so.2").write_bytes(f"\0\1NCCL version {version}+cuda13.0\0".encode())
    (bundle.folder / "needs.txt").write_text("bin/last libnccl.so.2\n")
    done = bundle.run("last", PYTHONPATH=str(tmp_path / "site"), CUDA_FOLDERS=str(tmp_path / "cuda"))
    assert f"libnccl.so.2: {tmp_path}/site/nvidia/nccl/lib (Python)\nNCCL 2.30.1" in done.stdout


def test_the_time_of_all_steps_is_limited(bundle):
    bundle.steps.write_text("first | 5/50 | - | {B}/bin/hangs\nsecond | 1/9 | - | {B}/bin/last\n")
    done = bundle.run(BUDGET_S="3")
    table = table_of(done.stdout)
    assert table["first"].startswith("killed") and table["second"].startswith("left out: the time of all steps, 3 s")


def test_an_archive_is_a_bundle_too(bundle, tmp_path):
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        archive.add(bundle.folder, ".")
    assert bundle.run("last", bundle=tmp_path / "bundle.tar.gz").returncode == 0
    assert "the last one" in bundle.log()


@pytest.mark.parametrize("words, expected", [
    ([], "needs BUNDLE and OUT"), (["{bundle}", "{out}", "nonsense"], "no step 'nonsense'; allowed: device"),
    (["/not/there", "{out}"], "has no needs.txt"), ([str(CI / "gpu_check.sh"), "{out}"], "is not an archive")])
def test_wrong_usage_is_one_line(bundle, words, expected):
    words = [word.format(bundle=bundle.folder, out=bundle.out) for word in words]
    done = subprocess.run([CI / "gpu_check.sh", *words], capture_output=True, text=True,
                          env={**os.environ, **bundle.environment})
    assert done.returncode == 2
    assert expected in done.stderr


def list_of(**environment: str) -> list[str]:
    done = subprocess.run([CI / "gpu_check.sh", "--list"], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment})
    return done.stdout.splitlines()


@pytest.mark.parametrize("steps", ["first", "second", "sanitize"])
def test_the_real_steps_are_likely_done_in_nine_minutes_and_begin_with_the_device(steps):
    lines = list_of(LIST=steps)
    assert lines[0].startswith("device ")
    likely = [int(line.split()[1]) for line in lines[:-1]]
    limits = [int(line.split()[5]) for line in lines[:-1]]
    assert all(short <= long for short, long in zip(likely, limits, strict=True))
    assert lines[-1].startswith(f"together likely {sum(likely)} s")
    assert sum(likely) < 8 * 60


def test_a_list_that_is_not_known_is_refused(bundle):
    done = subprocess.run([CI / "gpu_check.sh", "--list"], capture_output=True, text=True,
                          env={**os.environ, "LIST": "third"})
    assert done.returncode == 2 and "LIST is 'third'; allowed: first, second, sanitize" in done.stderr


def packed(bundle) -> dict[str, str]:
    """Contents of OUT's archive, by name."""
    with tarfile.open(bundle.out / "records.tar.gz") as archive:
        return {Path(member.name).name: archive.extractfile(member).read().decode()
                for member in archive.getmembers() if member.isfile()}


def test_results_are_few_files_of_which_one_says_what_failed(bundle):
    bundle.program("bin/last", 'for i in $(seq 20); do echo "{}" >${1%/*}/r$i.jsonl; done')
    bundle.steps.write_text(STEPS.replace("{B}/bin/last", "{B}/bin/last {O}/x"))
    bundle.run()
    assert sorted(path.name for path in bundle.out.iterdir()) == ["gpu_check.log", "records.tar.gz", "summary.html"]
    assert {"r1.jsonl", "r20.jsonl", "gpu_check.log", "steps.tsv"} <= packed(bundle).keys()
    page = (bundle.out / "summary.html").read_text()
    assert "2 steps well, 3 failed, 1 left out; 0 targets met, 0 missed" in page
    assert "killed: it took more than 1 s" in page


def test_what_is_cut_off_has_left_its_evidence(bundle):
    """Killed by a signal that cannot be caught, in the middle of a step that has written half of its records."""
    bundle.program("bin/hangs", 'echo "row" >$1/rows.partial.jsonl; echo "in the middle"; sleep 20')
    bundle.steps.write_text("device | 1/5 | - | {B}/tests/device\nhangs | 9/50 | gpu | {B}/bin/hangs {O}\n")
    with subprocess.Popen([CI / "gpu_check.sh", bundle.folder, bundle.out], stdout=subprocess.DEVNULL, start_new_session=True,
                          env={**os.environ, **bundle.environment, "PACK_EVERY_S": "1"}) as running:
        deadline = time.monotonic() + 30
        page = bundle.out / "summary.html"
        while time.monotonic() < deadline and not (page.exists() and "Partial records" in page.read_text()):
            time.sleep(0.2)
        os.killpg(running.pid, signal.SIGKILL)
    held = packed(bundle)
    assert held["rows.partial.jsonl"] == "row\n" and held["output.txt"] == "in the middle\n"
    assert held["steps.tsv"].startswith("device\t") and "fine" in held["gpu_check.log"]


def test_a_failed_test_is_repeated_under_compute_sanitizer_with_launches_one_by_one(bundle):
    bundle.program("tools/compute-sanitizer", 'echo "========= sync $LOCKSTEP_CUDA_SYNC: $*"')
    bundle.program("tests/family", "exit 1")
    bundle.steps.write_text("".join(f"fails-{k} | 1/5 | again | {{B}}/tests/family --gtest_filter=*/f{k}\n" for k in range(5))
                            + "other | 1/5 | - | {B}/tests/family\n")
    done = bundle.run(PATH=bundle.with_tools)
    log = bundle.log()
    for k in range(3):
        assert f"========= sync 1: --tool memcheck --print-limit 5 {bundle.folder}/tests/family --gtest_filter=*/f{k}" in log
    assert "fails-3 again" not in log and "other again" not in log, "three times at most, and tests of one rank alone"
    assert done.returncode == 1


def test_after_a_failure_the_driver_is_asked(bundle):
    bundle.program("tools/dmesg", "echo nothing; echo 'NVRM: Xid (PCI:0000:01:00): 31, MMU Fault'")
    bundle.program("tools/nvidia-smi", "echo 'all GPUs'")
    bundle.run("fails", PATH=bundle.with_tools)
    after = bundle.log().split("the driver after this failure")[1]
    assert "Xid (PCI:0000:01:00): 31" in after and "all GPUs" in after and "nothing" not in after


def test_gpus_are_held_open_while_steps_run(bundle):
    bundle.program("bin/last", "readlink /proc/self/fd/*")
    bundle.run("last", GPU_FILES="/dev/zero /not/there")
    assert "/dev/zero" in bundle.log()
    bundle.run("last", GPU_FILES="/not/there")
    assert "/dev/zero" not in bundle.log()


def test_a_dry_run_judges_no_results_but_refused_launches(bundle):
    (bundle.folder / "stand_in.txt").write_text("")
    said = {"wrong": "echo launched 12 >>$LOCKSTEP_STAND_IN_REPORT; echo '{}' >$1/wrong.jsonl; exit 7",
            "refused": "echo 'refused 2 x k: 49152 bytes' >>$LOCKSTEP_STAND_IN_REPORT; exit 2",
            "cuda": "echo 'copy failed on rank 0: no such stream (cudaErrorInvalidResourceHandle)'; exit 1",
            "test": "echo launched 3 >>$LOCKSTEP_STAND_IN_REPORT; exit 1",
            "usage": "echo launched 0 >>$LOCKSTEP_STAND_IN_REPORT; exit 6", "crash": "exit 139"}
    for name, text in said.items():
        bundle.program(f"bin/{name}", text)
    bundle.steps.write_text("".join(f"{name} | 1/5 | gpu | {{B}}/bin/{name} {{O}}\n" for name in said))
    done = bundle.run()
    assert table_of(done.stdout) == {
        "wrong": "ran: 12 launches, results not computed", "refused": "failed: a launch was refused 2 x k: 49152 bytes",
        "cuda": "failed: copy failed on rank 0: no such stream (cudaErrorInvalidResourceHandle)",
        "test": "failed with status 1", "usage": "failed with status 6", "crash": "failed with status 139"}
    assert done.returncode == 1 and "wrong.jsonl" not in packed(bundle)
    assert "dry run without a GPU, nothing was computed: 1 steps well, 5 failed" in (bundle.out / "summary.html").read_text()


@pytest.mark.parametrize("dry", [True, False])
def test_a_pytorch_without_cuda_is_left_out_alone(bundle, dry):
    if dry:
        (bundle.folder / "stand_in.txt").write_text("")
    bundle.program("peer.py", "")
    (bundle.folder / "peer.py").write_text("import sys; sys.exit('no CUDA device: PyTorch sees none')")
    bundle.program("bin/last", "echo launched 1 >>${LOCKSTEP_STAND_IN_REPORT:-/dev/null}")
    bundle.steps.write_text("peer | 1/5 | gpu python | {python} {B}/peer.py\nlast | 1/5 | gpu | {B}/bin/last\n")
    table = table_of(bundle.run().stdout)
    assert table["peer"] == "left out: no CUDA device: PyTorch sees none"
    assert table["last"] == ("ran: 1 launches, results not computed" if dry else "ok")


@pytest.mark.parametrize("words, expected", [([], "needs OUT"), (["{out}"], "is no bundle; ci/gpu_build.sh makes one")])
def test_a_dry_run_needs_a_folder_and_a_bundle(bundle, words, expected):
    done = subprocess.run([CI / "gpu_dry_run.sh", *(word.format(out=bundle.out) for word in words)], capture_output=True, text=True,
                          env={**os.environ, "BUNDLE": str(bundle.empty)})
    assert done.returncode == 2 and expected in done.stderr


def test_the_real_steps_name_every_gpu_test():
    declared = set()
    for file in CI.parent.glob("[a-z]*/**/CMakeLists.txt"):
        for name, rest in re.findall(r"lockstep_test\((\w+)([^)]*)\)", file.read_text()):
            if re.search(r"LABELS[^)]*\bgpu\b", rest):
                declared.add(name)
    named = {name for steps in ("first", "second") for line in list_of(LIST=steps) for name in re.findall(r"\{B\}/tests/(\w+)", line)}
    assert declared and declared <= named
