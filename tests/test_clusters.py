"""Batch scripts of docs/examples/slurm: shellcheck, options that sbatch has, programs and flags that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from test_documented_commands import Command, built, problem_of, split_command

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


def commands(script: Path, text: str) -> list[Command]:
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
    found = commands(script, text)
    assert found and all(one.words[:2] == ("srun", "--mpi=pmix") for one in found)
    assert [f"{one.where}: {problem}" for one in found if (problem := problem_of(one, built()))] == []


def test_the_scripts_pass_shellcheck() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("needs shellcheck")
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "") and len(SCRIPTS) == 3


def test_mistakes_are_found() -> None:
    assert sbatch_problems("#!/bin/bash\n#SBATCH --nodes=2\n# SBATCH --time=1\n#SBATCH --ntask=2\necho\n#SBATCH --mem=1G\n") == [
        "3: a comment to sbatch: a line must begin with #SBATCH", "4: sbatch has no option --ntask=2; write --name=value",
        "6: sbatch reads no options after the first command"]
    wrong = commands(Path("a.sbatch"), "for collective in all_reduce; do\n  srun -n 2 \"${collective}_perf\" \\\n --algoo ring\ndone")
    assert [problem_of(one, built()) for one in wrong] == ["all_reduce_perf has no flag --algoo"]
