#!/usr/bin/env python3
"""Kills training at random moments of a checkpoint, again and again, and goes on from what is there: nothing is lost.

As a test, a few kills for each layout. As a program, many, and the counts of docs/training.md:

    python3 tests/test_killed_checkpoints.py --bin build/release/bin --kills 70
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import find_binaries, MPIRUN, Programs

STEPS_PER_KILL = 16  # more than a run does before it is killed
RUN = ("--layers", "1", "--hidden", "32", "--length", "16", "--microbatch-size", "4", "--lr", "3e-3", "--peak-gflops", "100", "--threads", "1",
       "--gemm", "packed", "--report-every", "1")
KEEP = 2
DEADLINE_S = 60


@dataclass(frozen=True)
class Layout:
    name: str
    launcher: tuple[str, ...]
    words: tuple[str, ...]

    def command(self, folder: Path, *words: str) -> list[str]:
        return [*self.launcher, str(folder / "mini_train"), *RUN, *self.words, *words]


LAYOUTS = (
    Layout("one rank", (), ()),
    Layout("2 ranks, threads", (), ("--dp", "2", "--zero", "1")),
    Layout("2 ranks of mpirun", (*MPIRUN, "-n", "2"), ("--dp", "2", "--zero", "1", "--transport", "mpi", "--timeout", "10")),
)


def losses_in(text: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^step +(\d+) +loss +(\S+)", text, re.MULTILINE)}


def latest_step(folder: Path) -> int:
    """The step of the checkpoint that `latest` names, 0 without one; all of its files are whole."""
    if not (folder / "latest").exists():
        return 0
    name, checksum = (folder / "latest").read_text().split()
    assert int(checksum, 16) == zlib.crc32(name.encode()), "`latest` is damaged"
    text = (folder / name / "manifest.json").read_text()
    manifest = json.loads(text)
    assert int(manifest["crc32"], 16) == zlib.crc32(text[: text.rindex(',\n"crc32"')].encode()), "the manifest is damaged"
    for file in manifest["files"]:
        content = (folder / name / file["name"]).read_bytes()
        assert (len(content), zlib.crc32(content)) == (file["bytes"], int(file["crc32"], 16)), f"{name}/{file['name']} is damaged"
    return manifest["step"]


def is_partial(name: str) -> bool:
    return ".partial" in name


def processes_below(process: int) -> list[int]:
    """The ranks: the program itself, or mpirun's children that train."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children if b"mini_train" in Path(f"/proc/{child}/cmdline").read_bytes()] or [process]


class Trial:
    """One layout's training in one folder."""

    def __init__(self, layout: Layout, binaries: Path, folder: Path, kills: int, seed: str) -> None:
        self.layout, self.binaries, self.folder, self.steps = layout, binaries, folder, STEPS_PER_KILL * kills
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        whole = subprocess.run(self.command("--checkpoints", str(folder / "whole")), capture_output=True, text=True,
                               timeout=10 * DEADLINE_S, check=True)
        self.losses = losses_in(whole.stdout)
        assert len(self.losses) == self.steps
        self.killed = folder / "killed"
        self.killed.mkdir()

    def command(self, *words: str) -> list[str]:
        return self.layout.command(self.binaries, "--steps", str(self.steps), *words)

    def resumed(self, *words: str) -> list[str]:
        resume = ["--resume", str(self.killed)] if (self.killed / "latest").exists() else []
        return self.command(*resume, "--checkpoints", str(self.killed), "--keep", str(KEEP), *words)

    def kill_once(self) -> None:
        before = latest_step(self.killed)
        with tempfile.TemporaryFile("w+") as output:
            run = subprocess.Popen(self.resumed("--checkpoint-every", "1"), stdout=output, stderr=subprocess.STDOUT)
            known = self._kill(run, before)
            output.seek(0)
            text = output.read()
        after = latest_step(self.killed)
        assert after >= known, f"step {known} was the latest before the kill, and {after} after it: {text}"
        losses = losses_in(text)
        assert min(losses, default=before + 1) == before + 1, "it goes on where the checkpoint ends"
        assert all(self.losses[step] == loss for step, loss in losses.items()), "the losses are those of the run without kills"
        self._count(after)

    def _kill(self, run: subprocess.Popen, before: int) -> int:
        """In a checkpoint: some time after a partial folder was seen, once this run has written at least one. The step that was the
        latest just before."""
        end = time.monotonic() + DEADLINE_S
        wanted, seen = before + self.rng.randint(1, 4), False
        while not seen and run.poll() is None and time.monotonic() < end:
            names = os.listdir(self.killed)
            newest = max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=0)
            seen = newest >= wanted and any(map(is_partial, names))
        time.sleep(self.rng.uniform(0, 0.004))
        assert run.poll() is None, "it ended by itself"
        rank = self.rng.choice(processes_below(run.pid))
        pointer = self.killed / "latest"
        known = int(pointer.read_text().split()[0].removeprefix("step-")) if pointer.exists() else 0
        os.kill(rank, signal.SIGKILL)
        run.wait(DEADLINE_S)
        return known

    def _count(self, latest: int) -> None:
        names = os.listdir(self.killed)
        partial = [name for name in names if is_partial(name)]
        assert len(partial) <= 2, f"temporary files accumulate: {partial}"  # one being written; one being removed, or a pointer
        whole = {name for name in names if re.fullmatch(r"step-\d+", name)}
        assert f"step-{latest:08d}" in whole and len(whole) <= KEEP + 1 and whole | set(partial) | {"latest"} >= set(names)
        self.counts["kills"] += 1
        self.counts["with a partial checkpoint" if partial else "with none"] += 1

    def finish(self) -> None:
        """To the last step, without a kill: the same bits as without any, and nothing but checkpoints in the folder."""
        done = subprocess.run(self.resumed(), capture_output=True, text=True, timeout=10 * DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        losses = losses_in(done.stdout)
        assert losses and all(self.losses[step] == loss for step, loss in losses.items())
        assert not any(map(is_partial, os.listdir(self.killed)))
        last = f"step-{self.steps:08d}"
        names = sorted(path.name for path in (self.folder / "whole" / last).glob("*.safetensors"))
        for name in names:
            files = [self.folder / run / last / name for run in ("whole", "killed")]
            assert files[0].read_bytes() == files[1].read_bytes(), f"{name} differs from that of the run without kills"
        assert names


def trial(layout: Layout, binaries: Path, folder: Path, kills: int, seed: str) -> Counter[str]:
    binary = Trial(layout, binaries, folder, kills, seed)
    for _ in range(kills):
        binary.kill_once()
    binary.finish()
    return binary.counts


@pytest.mark.parametrize("layout,kills", zip(LAYOUTS, (4, 4, 2)), ids=lambda value: getattr(value, "name", None))
def test_kills_in_a_checkpoint_lose_nothing(layout: Layout, kills: int, request: pytest.FixtureRequest, programs: Programs,
                                            tmp_path: Path) -> None:
    if layout.launcher:
        request.getfixturevalue("mpi_programs")
    assert trial(layout, programs.folder, tmp_path, kills, "test")["kills"] == kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=find_binaries(), help="folder of the programs")
    parser.add_argument("--kills", type=int, default=70, help="kills for each layout")
    parser.add_argument("--only", default="", help="expression that a layout's name must contain")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    for layout in (layout for layout in LAYOUTS if re.search(options.only, layout.name)):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{layout.name}: {dict(trial(layout, options.bin, Path(folder), options.kills, options.seed))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
