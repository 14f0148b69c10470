"""Commands in README.md, CONTRIBUTING.md and docs/: all that a page shows exists, takes the flags that it is given, and runs.

A command is a line of a block that begins with ```sh (or a line that begins with "$ " in a block of output), or a code span in a text
that begins with a program of ours. Flags of all are looked up in the program's --help. Those in blocks are run, made small by flags of
their own (SMALL), except those that NOT_RUN lists with the reason. Batch scripts for Slurm that pages describe are checked but not run.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MPIRUN, ROOT, Programs, find_binaries

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))
# Programs of others, whose flags are not checked.
TOOLS = ("nvcc", "cmake", "ctest", "ninja", "tar", "apptainer", "apt-get", "docker", "pip", "sbatch", "nsys", "ncu")
SWEEP = "-b 1K -e 1K -n 1 -w 0 --ranks 2 -T 20"
SMALL = {  # flags put behind those of the page; the last of a kind counts
    **{f"{name}_perf": SWEEP for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv",
                                          "sendrecv", "gather", "scatter", "hypercube")},
    "kernels_bench": "--benchmark_list_tests",
    "mini_train": "--steps 1 --length 16",
    "scaling": "--rounds 1 --steps 1 --length 16",
    "suite": "--list",
    "tune": "-b 1K -e 1K --time-budget 1",
    "zero_bench": "--model nano --layers 1 --length 16 --microbatch-size 1 --steps 1 --warmup 1",
    "pipeline_perf": "",
    "simulate": "",
    "simulate plan": "--gpus 8 --batch 8 --model gpt2-124m --top 1",
    "simulate map": "--gpus 8 --links 25",
    "reports": "--summary",
}
NOT_RUN = (  # expression found in a command -> reason
    (r"^(ci/quickstart|ci/test|ci/run|ci/lint|ci/install)\.sh", "installs, builds or runs everything"),
    (r"^(cmake|ctest|ninja) ", "builds, or runs tests of a build"),
    (r"^(apptainer|apt-get|docker|pip|sbatch|srun) ", "installs, or needs Docker or Slurm; tests/test_install.py and the tests of batch scripts"),
    (r"\bpytest\b", "runs tests"),
    (r"^ci/hosts/namespaces\.sh", "needs root; tests/test_lost_ranks.py runs it"),
    (r"ci/gpu_(build|check|dry_run)\.sh|^tar .*gpu", "needs nvcc, or a GPU"),
    (r"-m compare sass", "needs nvcc's cuobjdump"),
    (r"^nvcc |ptx_check|testing/ptx/|counts\.jsonl", "needs nvcc; tests/test_gpu_counts.py runs it"),
    (r"ci/gate\.py (ab|exact)|gate_selftest\.py", "measures or builds for minutes; the stage gate and ci/gate/*_test.py run it"),
    (r"ci/gate\.py (compare|history|store|calibrate)", "needs stored measurements; ci/gate/stored_test.py runs it"),
    (r"-m compare (?!sass|counts)", "measures for minutes, against other libraries"),
    (r"/tests/\w+_test", "a test program"),
    (r" tests/test_\w+\.py ", "tries for minutes what the file tries for seconds as a test"),
    (r"--(transport|device) (cuda|nccl)|^nsys ", "needs a GPU"),
    (r"\s(x|NAME|FILE|BUNDLE|OUT)\b|\.\.\.|=x\b|/x\b", "has a placeholder"),
    (r"gpt2/", "needs files of the reader's"),
    (r"validation_page", "writes files of the repository; simulator_validation_test compares them"),
    (r"--calibrate|here\.json", "needs records of this machine that take minutes; tests/test_simulate.py runs it"),
    (r"reports\.kineto|measured\.jsonl", "needs a profile of the reader's; reports/tests/test_kineto.py runs it"),
    (r"reports\.claims", "needs records of the whole suite claims; reports/tests/test_claims.py runs it"),
)


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    words: tuple[str, ...]
    in_block: bool
    output: str | None = None  # the file behind ">"

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}: {' '.join(self.words)}"

    @property
    def reason(self) -> str | None:
        """Why it is not run here."""
        text = " ".join(self.words)
        return next((reason for pattern, reason in NOT_RUN if re.search(pattern, text)), None)


def split_command(text: str) -> list[tuple[tuple[str, ...], str | None]]:
    """Simple commands of a shell line, without variables that they set or export and comments, each with the file behind its ">"."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word and not word.strip("&|;"):
            commands.append([])
        elif commands[-1] or not re.fullmatch(r"export|\w+=\S*", word):
            commands[-1].append(word)
    ends = [words.index(">") if ">" in words else len(words) for words in commands]
    return [(tuple(words[:end]), words[end + 1] if end < len(words) else None) for words, end in zip(commands, ends) if words]


def block_commands(page: str, text: str) -> list[Command]:
    found: list[Command] = []
    tag: str | None = None  # None: outside of a block
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            tag = line.strip()[3:] if tag is None else None
            continue
        is_prompt = tag is not None and line.startswith("$ ")
        if tag != "sh" and not is_prompt or not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first if pending else number
        pending += line.removeprefix("$ ")
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        found += [Command(page, first, words, True, output) for words, output in split_command(pending)]
        pending = ""
    return found


def span_commands(page: str, text: str, ours: frozenset[str]) -> list[Command]:
    """Code spans that are a program of ours with a flag or more; those in blocks are blanked first."""
    text = re.sub(r"(?ms)^[ ]*```.*?^[ ]*```", lambda m: "\n" * m.group().count("\n"), text)
    found = []
    for m in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        span = " ".join(m.group(1).split())
        first = span.split()[0].rsplit("/", 1)[-1]
        if (first in ours or re.match(r"ci/\S+\.(py|sh) |(/usr/bin/)?python3 |mpirun ", span)) and re.search(r" -", span):
            number = text[: m.start()].count("\n") + 1
            found += [Command(page, number, words, False) for words, _ in split_command(span)]
    return found


def built() -> frozenset[str]:
    folder = find_binaries()
    return frozenset(path.name for path in folder.iterdir() if os.access(path, os.X_OK)) if folder else frozenset()


def commands_of(page: str, text: str, ours: frozenset[str]) -> list[Command]:
    return block_commands(page, text) + span_commands(page, text, ours)


def all_commands() -> list[Command]:
    ours = built()
    return [our for page in PAGES for our in commands_of(page, (ROOT / page).read_text(encoding="utf-8"), ours)]


def taken_apart(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Program that is run ("simulate plan", "reports", "ci/gate.py ab", "cmake") and its arguments."""
    if words[0] in ("mpirun", "srun"):
        at = next((i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] in built() | {"mini_train"}), None)
        return taken_apart(words[at:]) if at is not None else (words[0], ())
    if words[0] in ("python3", "/usr/bin/python3"):
        return taken_apart(words[2:] if words[1] == "-m" else words[1:])
    name = words[0] if words[0].startswith(("ci/", "testing/", "tests/")) else words[0].rsplit("/", 1)[-1]
    has_command = name in ("simulate", "compare", "ci/gate.py") and len(words) > 1 and not words[1].startswith("-")
    return (f"{name} {words[1]}", words[2:]) if has_command else (name, words[1:])


@functools.lru_cache(maxsize=None)
def help_of(program: str) -> str:
    """Text of --help; what is no program of ours has none."""
    name, *command = program.split()
    if name.startswith(("reports", "compare")):
        call = [sys.executable, "-m", name]
    elif name.endswith(".py"):
        call = [sys.executable, str(ROOT / name)]
    else:
        call = [str(find_binaries() / name)]
    done = subprocess.run([*call, *command, "--help"], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, f"{program} --help: {done.stderr}"
    return done.stdout


def problem_of(command: Command, ours: frozenset[str]) -> str | None:
    """Says what is wrong with a command's program or its flags, by their help."""
    program, arguments = taken_apart(command.words)
    name = program.split()[0]
    if name in TOOLS or name in ("pytest", "mpirun") or "/tests/" in command.words[0]:
        return None
    if name.endswith(".sh") or name.startswith("core/"):
        return None if (ROOT / name).is_file() else f"there is no {name}"
    if name in ("x", "x_test"):  # what a reader adds
        return None
    module = ROOT / name.replace(".", "/")
    is_module = name.startswith(("reports", "compare")) and ((module / "__main__.py").is_file() or module.with_suffix(".py").is_file())
    if not (is_module or name in ours or (ROOT / name).is_file()):
        return f"there is no program {name}"
    flags = [word.split("=")[0] for word in arguments if re.match(r"--?[A-Za-z]", word) and not word.startswith("--benchmark_")]
    wrong = (flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_of(program)))
    return next((f"{program} has no flag {flag}" for flag in wrong), None)


@pytest.fixture(name="ours", scope="module")
def _ours(programs: Programs) -> frozenset[str]:
    return built()


def test_each_program_exists_and_takes_the_flags_that_pages_give_it(ours: frozenset[str]) -> None:
    found = all_commands()
    assert len([line for line in found if line.in_block]) > 40 and len(found) > 100
    assert [f"{line.where}: {problem}" for line in found if (problem := problem_of(line, ours))] == []


def test_what_is_wrong_with_a_command_is_found(ours: frozenset[str]) -> None:
    def problems(text: str) -> list[str | None]:
        return [problem_of(our, ours) for our in commands_of("a.md", text, ours)]

    assert problems("```sh\nbuild/release/bin/all_reduce_perf --algoo ring   # comment\n```\n") == ["all_reduce_perf has no flag --algoo"]
    assert problems("```sh\nbuild/release/bin/all_reduce -b 8\n```\n") == ["there is no program all_reduce"]
    assert problems("```sh\nsimulate plan --gpus 8 \\\n  --batches 8\n```\n") == ["simulate plan has no flag --batches"]
    assert problems("Text `mini_train --step 3` text") == ["mini_train has no flag --step"]
    assert problems("```\n$ python3 ci/gate.py ab --bass main\noutput --x\n```\n") == ["ci/gate.py ab has no flag --bass"]
    assert problems("```sh\nLOCKSTEP_BIN=a ci/none.sh && mpirun -n 4 build/release/bin/zero_bench --zeroo 1\n```\n") == [
        "there is no ci/none.sh", "zero_bench has no flag --zeroo"]
    assert problems("```sh\nall_reduce_perf --algo ring > file\nsimulate --list\n```\n`mini_train` `-x`") == [None, None]


def test_each_exception_is_needed() -> None:
    texts = [" ".join(command.words) for command in all_commands()]
    assert [pattern for pattern, _ in NOT_RUN if not any(re.search(pattern, text) for text in texts)] == []


def prepared(folder: Path, words: tuple[str, ...]) -> list[str]:
    """The command as it runs in `folder`: with our programs, a record file where it names some, and small."""
    program, _ = taken_apart(words)
    call = [str(find_binaries() / word.rsplit("/", 1)[-1]) if word.rsplit("/", 1)[-1] in built() else word for word in words]
    call = [sys.executable if word in ("python3", "/usr/bin/python3") else word for word in call]
    if call[0] == "mpirun":
        at = next(i for i, word in enumerate(call) if os.path.isabs(word))
        call = [*MPIRUN, "-n", "2", *call[at:]]
    small = SMALL.get(program, SMALL.get(program.split()[0]))
    assert small is not None, f"{program} has no small form in this test: add one to SMALL"
    if "mpirun" in words[0]:
        small = small.replace("--ranks 2", "")
    call = [word.replace("*.jsonl", "r.jsonl") for word in call]
    return call + small.split()


def run(folder: Path, command: Command) -> str | None:
    """Runs it; returns what went wrong."""
    if command.words[0] == "mpirun" and not MPIRUN[0]:
        return None
    call = prepared(folder, command.words)
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "LOCKSTEP_TUNING": str(folder / "tuning.json"), "PYTHONPATH": path}
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, cwd=folder, env=env, check=False)
    if command.output is not None:  # later lines of the page read it
        (folder / command.output).write_text(done.stdout, encoding="utf-8")
    return None if done.returncode == 0 else f"{command.where}: status {done.returncode}: {done.stderr.strip()[-300:]}"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, ours: frozenset[str], tmp_path: Path) -> None:
    found = [command for command in block_commands(page, (ROOT / page).read_text(encoding="utf-8")) if command.reason is None]
    if not found:
        return
    for name in ("bench", "ci", "docs", "simulator", "workload"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in {re.sub(r"\*", "r", word) for line in found for word in line.words if word.endswith("/*.jsonl")}:
        (tmp_path / name).parent.mkdir(parents=True)
        command = Command(page, 0, ("all_reduce_perf", "--json", name), True)
        assert run(tmp_path, command) is None
    assert [problem for line in found if (problem := run(tmp_path, line))] == []


# ---- What pages show of outputs that repeat exactly.

def shown_after(page: str, command: str) -> str:
    """The block of output that follows a command's block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text[text.index(f"{command}\n```"):].split("```")[2]


def without_layout(text: str) -> str:
    """Pages break lines; the seconds of a search are those of a machine."""
    return re.sub(r"; [0-9.]+ s\b", "", re.sub(r"[#\s]+", " ", text)).strip()


@pytest.mark.parametrize(("page", "command"), [
    ("docs/simulator.md", "simulate plan --model gpt3-175b --machine dgx-a100 --gpus 1024 --batch 1536 --top 3"),
    ("docs/collectives.md", "all_reduce_perf --algo two_shot --ranks 3 --draw")])
def test_the_output_of_a_command_is_that_of_the_page(programs: Programs, page: str, command: str) -> None:
    done = programs.run(*command.split(), timeout=300)
    assert done.returncode == 0 and without_layout(shown_after(page, command)) in without_layout(done.stdout), done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_block_with_mpirun_names_the_flags_that_a_fresh_machine_needs(page: str) -> None:
    """mpirun refuses root, and more ranks than cores, unless it is given these."""
    blocks = (ROOT / page).read_text(encoding="utf-8").split("```")[1::2]
    missing = [block for block in blocks if re.search(r"^(\S+ )*mpirun .*(-n|--hostfile)", block, re.MULTILINE)
               and not ("--oversubscribe" in block and "--allow-run-as-root" in block)]
    assert missing == []


# Batch scripts of docs/examples/slurm: shellcheck, options that sbatch has, programs and flags that exist.

SCRIPTS = sorted((ROOT / "docs" / "examples" / "slurm").glob("*.sbatch"))
# Long options of sbatch that a script may have, from the manual of Slurm 22.05, sbatch(1).
SBATCH_OPTIONS = frozenset("""
    account acctg-freq array batch bb begin chdir cluster-constraint clusters comment constraint container contiguous
    core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error
    exclude exclusive export extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
    gpus-per-task gres gres-flags hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user
    mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe parsable
    partition power prefer priority profile propagate qos quiet reboot requeue reservation signal sockets-per-node
    spread-job switches thread-spec threads-per-core time time-min tmp uid use-min-nodes verbose wait wait-all-nodes wckey
    wrap
""".split())


def sbatch_problems(text: str) -> list[str]:
    """Says what is wrong with the lines that sbatch reads."""
    found, commands_began = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        commands_began = commands_began or bool(line.strip()) and not line.startswith("#")
        if not line.startswith("#SBATCH"):
            if re.match(r"#+ *SBATCH", line):
                found.append(f"{number}: a comment to sbatch: a line must begin with #SBATCH")
            continue
        if commands_began:
            found.append(f"{number}: sbatch reads no options after the first command")
        for word in shlex.split(line.removeprefix("#SBATCH"), comments=True):
            name = re.fullmatch(r"--([a-z-]+)(=\S+)?", word)
            if not name or name.group(1) not in SBATCH_OPTIONS:
                found.append(f"{number}: sbatch has no option {word}; write --name=value")
    return found


def srun_commands(script: Path, text: str) -> list[Command]:
    """The srun lines of a script, with the collective of its loop in place."""
    collective = re.search(r"for collective in (\w+)", text)
    text = text.replace("\\\n", " ").replace("${collective}", collective.group(1) if collective else "")
    lines = [(number, line.split(" # ")[0]) for number, line in enumerate(text.splitlines(), start=1)]
    return [Command(script.name, number, words, True) for number, line in lines if " srun " in f" {line}" and not line.startswith("#")
            for words, _ in split_command(line[line.index("srun"):])]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_batch_script(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert sbatch_problems(text) == []
    found = srun_commands(script, text)
    assert found and all(line.words[:2] == ("srun", "--mpi=pmix") for line in found)
    assert [f"{line.where}: {problem}" for line in found if (problem := problem_of(line, built()))] == []


def test_the_scripts_pass_shellcheck() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("needs shellcheck")
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "") and len(SCRIPTS) == 3


def test_mistakes_in_a_batch_script_are_found() -> None:
    assert sbatch_problems("#!/bin/bash\n#SBATCH --nodes=2\n# SBATCH --time=1\n#SBATCH --ntask=2\necho\n#SBATCH --mem=1G\n") == [
        "3: a comment to sbatch: a line must begin with #SBATCH", "4: sbatch has no option --ntask=2; write --name=value",
        "6: sbatch reads no options after the first command"]
    wrong = srun_commands(Path("a.sbatch"), "for collective in all_reduce; do\n  srun -n 2 \"${collective}_perf\" \\\n --algoo ring\ndone")
    assert [problem_of(line, built()) for line in wrong] == ["all_reduce_perf has no flag --algoo"]
