"""Installing: `cmake --install` into a folder, a project of its own that links the installed libraries, man pages and completion,
packages, and the container files. Uses the build that is there."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT, find_binaries

VERSION = re.search(r"project\(lockstep VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)

MOST_BYTES = 100 << 20  # programs that are larger together are not packed in a test


def run(*words: object, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 120) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(name="build", scope="module")
def _build() -> Path:
    folder = find_binaries()
    if folder is None or not (folder.parent / "CPackConfig.cmake").is_file():
        pytest.skip("needs a build folder of CMake's; there is none")
    return folder.parent


@pytest.fixture(name="stage", scope="module")
def _stage(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stage = tmp_path_factory.mktemp("install") / "lockstep"
    for component in ("programs", "development"):
        run("cmake", "--install", build, "--prefix", stage, "--component", component)
    return stage


def test_a_project_elsewhere_uses_the_installed_libraries(stage: Path, tmp_path: Path) -> None:
    example = shutil.copytree(ROOT / "docs" / "examples" / "use_lockstep", tmp_path / "source")
    run("cmake", "-S", example, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={stage}", "-DCMAKE_CXX_FLAGS=-Wall -Werror")
    run("cmake", "--build", tmp_path / "build")
    assert str(ROOT / "core") not in (tmp_path / "build" / "build.ninja").read_text(encoding="utf-8")
    printed = run(tmp_path / "build" / "use_lockstep").splitlines()
    assert printed[:2] == ["ring: 14 steps, 7340032 bytes per rank", "zb_h1: 24 actions on rank 0"]
    assert re.fullmatch(r"step: \d{3,5} ms, [3-6]\d % of the peak", printed[2]) and printed[3] == "gelu(1): 0.8412"

    lists = example / "CMakeLists.txt"
    lists.write_text(lists.read_text(encoding="utf-8").replace("simulator kernels)", "simulator kernel)", 1))
    done = subprocess.run(["cmake", tmp_path / "build"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "no component 'kernel'; allowed: core reduce kernels" in done.stderr


def test_installed_headers_include_only_installed_headers(stage: Path) -> None:
    headers = {str(path.relative_to(stage / "include/lockstep")) for path in (stage / "include/lockstep").rglob("*.h")}
    folders = {str(Path(header).parent) for header in headers}
    assert {"core", "kernels/gemm", "collectives/plan", "collectives/algorithms", "collectives/transports", "collectives/executors", "schedules",
            "schedules/interpreter", "workload", *(f"simulator/{line}" for line in (
                "emulated", "engine", "machine", "network", "predict", "prices"))} <= folders
    missing = []
    for header in headers:
        text = (stage / "include/lockstep" / header).read_text(encoding="utf-8")
        missing += [(header, name) for name in re.findall(r'#include "([^"]+)"', text) if name not in headers]
    assert missing == []


def test_the_page_names_each_target(stage: Path) -> None:
    (targets,) = (stage / "lib").rglob("LockstepTargets.cmake")
    names = set(re.findall(r"add_library\((Lockstep::\w+)", targets.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert len(names) > 15 and [name for name in names if f"`{name}`" not in page and "::simulator_" not in name] == []


def test_no_path_of_this_machine_is_installed(stage: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (stage / "lib").rglob("*.cmake")}
    assert len(texts) > 3
    assert [str(path) for path, text in texts.items() if str(ROOT) in text or "/usr/lib" in text] == []


def programs(stage: Path) -> list[Path]:
    """By the names that people use: collective_perf is the binary to which all_reduce_perf and ten more are links."""
    links = [path for path in (stage / "bin").iterdir() if path.is_symlink()]
    assert len(links) == 11 and {str(path.readlink()) for path in links} == {"collective_perf"}
    return [path for path in (stage / "bin").iterdir() if path.name != "collective_perf"]


def test_installed_programs_run_and_find_their_data(stage: Path, tmp_path: Path) -> None:
    for program in programs(stage):
        first, revision, _ = run(program, "--version", cwd=tmp_path).splitlines()
        assert first == f"{program.name} (Lockstep) {VERSION}"
        assert re.match(r"revision ([0-9a-f]{40}|unknown)", revision)
    printed = run(stage / "bin/simulate", "plan", "--machine", "dgx-h100", "--gpus", 8, "--batch", 8, "--model", "gpt2-124m", "--top", 1, cwd=tmp_path)
    assert "gpt2-124m" in printed
    machines = sorted(path.name for path in (stage / "share/lockstep/machines").iterdir())
    assert machines == sorted(path.name for path in (ROOT / "simulator/machine/machines").iterdir())


# Man pages and completion

def described(program: Path, *command: str) -> dict:
    return json.loads(run(program, *command, "--describe"))


def test_each_program_and_command_has_a_man_page_with_all_flags(stage: Path) -> None:
    pages = {path.name.removesuffix(".1.gz"): gzip.decompress(path.read_bytes()).decode() for path in (stage / "share/man/man1").iterdir()}
    simulate = [f"simulate-{line['name']}" for line in described(stage / "bin/simulate")["commands"]]
    assert set(pages) == {path.name for path in programs(stage)} | set(simulate) and len(simulate) == 11
    for name, command in (("all_reduce_perf", ()), ("simulate", ()), ("simulate-plan", ("plan",))):
        for flag in described(stage / "bin" / name.split("-")[0], *command)["flags"]:
            assert all(word.replace("-", "\\-") in pages[name] for word in flag["names"].split(","))


def test_man_pages_have_no_warnings(stage: Path, tmp_path: Path) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("needs mandoc")
    for page in (stage / "share/man/man1").iterdir():
        (tmp_path / page.stem).write_bytes(gzip.decompress(page.read_bytes()))
    assert run("mandoc", "-T", "lint", "-W", "warning", *sorted(tmp_path.iterdir())) == ""


def completions(stage: Path, line: str) -> list[str]:
    """Words that bash offers for the last word of a line."""
    script = f"""
source {stage}/share/bash-completion/completions/all_reduce_perf
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_lockstep "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"; complete -p all_reduce_perf simulate >&2"""
    return run("bash", "--norc", "-c", script).split()


def test_completion(stage: Path) -> None:
    assert completions(stage, "all_reduce_perf --min") == ["--minbytes", "--min-ctas"]
    assert completions(stage, "simulate rec") == ["recompute"]
    assert "--ga" not in completions(stage, "simulate plan --g") and completions(stage, "simulate plan --gp") == ["--gpus"]
    assert completions(stage, "/opt/bin/simulate memory --zero") == [completion for completion in completions(stage, "simulate memory --") if completion.startswith("--zero")]
    assert completions(stage, "all_reduce_perf --json -") == []  # files: bash's own completion
    offered = completions(stage, "mini_train -")
    assert {"--model", "--sequence-parallel", "-t", "--threads", "--version"} <= set(offered)


# Packages

def test_the_source_package_has_the_tracked_files_and_the_revision(build: Path, tmp_path: Path) -> None:
    if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False).returncode:
        pytest.skip("needs the git repository")
    git = ("git", "-c", "safe.directory=*", "-C", ROOT)
    run("cpack", "--config", build / "CPackSourceConfig.cmake", "-B", tmp_path, cwd=build)
    tracked = run(*git, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    with tarfile.open(tmp_path / f"lockstep-{VERSION}.tar.gz") as package:
        names = {member.name.removeprefix(f"lockstep-{VERSION}/") for member in package if not member.isdir()}
        package.extractall(tmp_path, [member for member in package if member.name.startswith(f"lockstep-{VERSION}/cmake/")])
    assert names == set(tracked)

    unpacked = tmp_path / f"lockstep-{VERSION}"
    run("cmake", f"-DSOURCE_DIR={unpacked}", f"-DOUTPUT={tmp_path}/revision.cpp", "-P", unpacked / "cmake/source_revision.cmake")
    head = run(*git, "rev-parse", "HEAD").strip()
    assert f'return {{"{head}", std::nullopt}};' in (tmp_path / "revision.cpp").read_text(encoding="utf-8")


def package_of(build: Path, component: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The Debian package of a component, and its control fields."""
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("needs dpkg-dev")
    run("cpack", "-B", folder, "-D", f"CPACK_COMPONENTS_ALL={component}", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", cwd=build)
    (path,) = folder.glob("*.deb")
    fields = dict(re.findall(r"^ ?(\S+): (.*)$", run("dpkg-deb", "--info", path), re.M))
    assert fields["Version"] == VERSION and path.name == f"{fields['Package']}_{VERSION}_{fields['Architecture']}.deb"
    assert re.fullmatch(r".+ <[^<>@ ]+@[^<>@ ]+>", fields["Maintainer"]) and len(fields["Description"]) < 80
    return path, fields


def test_the_package_of_the_libraries(build: Path, tmp_path: Path) -> None:
    path, fields = package_of(build, "development", tmp_path)
    assert (fields["Package"], fields["Section"]) == ("lockstep-dev", "libdevel") and "libhwy-dev" in fields["Depends"]
    assert "./usr/lib/cmake/Lockstep/LockstepConfig.cmake" in run("dpkg-deb", "-c", path).replace("x86_64-linux-gnu/", "")


def test_the_package_of_the_programs(build: Path, tmp_path: Path) -> None:
    if not shutil.which("file"):
        pytest.skip("needs file, by which CMake finds what dpkg-shlibdeps can read")
    if sum(program.stat().st_size for program in (build / "bin").glob("*_bench")) > MOST_BYTES:
        pytest.skip(f"the programs hold more than {MOST_BYTES >> 20} MiB of code for GPUs")
    path, fields = package_of(build, "programs", tmp_path)
    assert (fields["Package"], fields["Section"]) == ("lockstep", "science")
    assert {"libc6", "libfmt9", "libstdc++6"} <= {line.split()[0] for line in fields["Depends"].split(", ")}
    run("dpkg-deb", "-x", path, tmp_path / "root")
    assert f"(Lockstep) {VERSION}" in run(tmp_path / "root/usr/bin/simulate", "--version", cwd=tmp_path)
    assert "dgx-h100" in run(tmp_path / "root/usr/bin/simulate", "--list", cwd=tmp_path)


# Containers: they cannot be built here.

@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_container_files_name_what_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
        assert all((ROOT / line).exists() for line in source.split())
    presets = {load["name"] for load in json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["buildPresets"]}
    assert set(re.findall(r"--preset (\S+)", text)) <= presets
    assert len(re.findall(r"^FROM [a-z/]+:", text, re.M)) == 2  # a stage that builds, and one without compilers; tags are given
    installed = (ROOT / "reports/pyproject.toml").read_text(encoding="utf-8")
    needed = re.findall(r'"(\w+)"', re.search(r"dependencies = \[(.*)\]", installed).group(1))
    assert all(f"python3-{line}" in text for line in needed)
    assert (re.search(r"^USER (\d+)$", text, re.M) or [0, "0"])[1] != "0"  # mpirun refuses root
    if shutil.which("hadolint"):
        run("hadolint", ROOT / name)
