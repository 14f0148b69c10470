"""The two sides of a comparison as builds, how they were made, and a line of progress while they are made."""

import argparse
import fcntl
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gate.model import CouldNotRun, Side, UsageError
from gate.worker import run_in_group, Worker


ROOT = Path(__file__).resolve().parents[2]  # the repository


def wipe() -> None:
    """Erases a line of progress before any other output."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


# The two sides as programs that can be started: existing build folders, or revisions that are built once.

BUILD_DEADLINE_S = 3600
RECORDS_DEADLINE_S = 600


@dataclass(frozen=True)
class Build:
    """A build folder; its programs are in bin/."""

    side: Side
    folder: Path

    def program(self, name: str) -> Path:
        path = self.folder / "bin" / name
        if not path.is_file():
            raise CouldNotRun(f"{self.side.name}: {path} is not there; build target {name}")
        return path

    def start(self, command: Sequence[str], environment: Mapping[str, str], core: int | None) -> Worker:
        """Starts a worker; a variable of random length moves its stack, as the stack's address can change times by percents
        (Mytkowicz et al. 2009, Producing wrong data without doing anything obviously wrong)."""
        pad = {"LOCKSTEP_GATE_PAD": "x" * random.randrange(4096)}
        return Worker([str(self.program(command[0])), *command[1:], "--serve"], {**environment, **pad}, core=core,
                      side=self.side.name)

    def records(self, name: str, words: Sequence[str], file: Path) -> Path:
        """Runs a command, which must write its records to the file; returns the file. Errors begin with `name`."""
        return self._recorded(name, [str(self.program(words[0])), *words[1:]], file)

    def why_no_device_counts(self) -> str | None:
        return None if self._counter.is_file() else f"{self.side.name} has no tests/{self._counter.name}, which a build with CUDA has"

    def device_counts(self, name: str, words: Sequence[str], file: Path) -> Path:
        """The same for a command of ptx_check, which runs this build's PTX without a GPU (docs/gpu.md)."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder / "stand_in"), "STAND_IN_PRODUCTS": "ours"}
        return self._recorded(name, [str(self._counter), words[1], str(self.folder / "ptx"), *words[2:]], file, environment)

    @property
    def _counter(self) -> Path:
        return self.folder / "tests" / "ptx_check"

    def _recorded(self, name: str, words: Sequence[str], file: Path, environment: Mapping[str, str] | None = None) -> Path:
        command, program = [*words, "--json", str(file)], Path(words[0]).name
        with tempfile.TemporaryFile() as errors:
            try:
                status = run_in_group(command, RECORDS_DEADLINE_S, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                                      env=environment)
            except subprocess.TimeoutExpired as error:
                raise CouldNotRun(f"{name}: {program} did not end within {RECORDS_DEADLINE_S} s") from error
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
        if status != 0:
            raise CouldNotRun(f"{self.side.name}: {name}: {program} ended with status {status}: {' '.join(last)}")
        return file


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--build-cache", type=Path, default=ROOT / "out" / "gate", metavar="DIR", help="folder of builds (default: out/gate)")
    parser.add_argument("--cmake", action="append", default=[], metavar="FLAG",
                        help="flag for builds of revisions, such as -DLOCKSTEP_CUDA=OFF; may be repeated")


def build_at(folder: Path, flag: str) -> Build:
    if not (folder / "bin").is_dir():
        raise UsageError(f"{flag} {folder}: no build folder; allowed: one with bin/")
    return Build(Side(str(folder), _revision_of_build(folder), folder.resolve().name), folder.resolve())


def resolve(text: str, flag: str, programs: Sequence[str], root: Path, cache: Path, cmake: Sequence[str]) -> Build:
    """`text` as the user gave it: a build folder, or a revision of the repository at `root`, which is built in `cache` unless
    it is there already. Raises UsageError if it is neither, CouldNotRun if the build fails."""
    if (Path(text) / "bin").is_dir():
        return build_at(Path(text), flag)
    revision = _git(root, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if not revision:
        raise UsageError(f"{flag} {text}: neither a build folder with bin/ nor a revision of {root.name}; allowed: either")
    folder = cache / revision
    folder.mkdir(parents=True, exist_ok=True)
    with _sole_builder(folder, revision):
        return Build(Side(text, revision, revision[:12]), _built(revision, programs, root, folder, cmake))


def left_out(sides: Sequence[Side], root: Path) -> list[str]:
    """Notes: a revision is the committed state, whereas a user who names HEAD may mean the working tree."""
    head = _git(root, "rev-parse", "HEAD")
    named = [side.name for side in sides if side.revision == head and side.source == head[:12]]
    if not named or not _git(root, "status", "--porcelain", "--untracked-files=no"):
        return []
    return [f"{named[-1]} is built as committed: changes of the working tree are not in it (give a build folder to measure them)"]


def _git(root: Path, *words: str) -> str:
    """Output of the command; empty where it fails."""
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()


def _revision_of_build(folder: Path) -> str:
    """Revision from the source file that CMake writes into the build; "unknown" where there is none."""
    for line in _lines_of(folder / "core" / "source_revision.cpp"):
        found = re.search(r"\b([0-9a-f]{40})\b", line)
        if found:
            return found.group(1)
    return "unknown"


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


@contextmanager
def _sole_builder(folder: Path, revision: str) -> Iterator[None]:
    """Other processes that need the same revision wait until this one has built it; the lock ends with its process."""
    end = time.monotonic() + BUILD_DEADLINE_S
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise CouldNotRun(f"{revision[:12]}: another process has held {folder}/lock for {BUILD_DEADLINE_S:g} s") from None
                time.sleep(0.2)
        yield


def _built(revision: str, programs: Sequence[str], root: Path, folder: Path, cmake: Sequence[str]) -> Path:
    source, build, log = folder / "source", folder / "build", folder / "build.log"
    stamp = build / "configured_with"
    wanted = "\n".join(cmake)
    if not source.is_dir():
        _extract(revision, root, source, log)
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"building {revision[:12]}: minutes, once; output in {log}", file=sys.stderr, flush=True)
        shutil.rmtree(build, ignore_errors=True)  # cmake caches flags, including those with which it failed
        _run(["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *cmake], log, revision)
        stamp.write_text(wanted)
    _run(["cmake", "--build", str(build), "--target", *programs], log, revision)
    return build


def _extract(revision: str, root: Path, source: Path, log: Path) -> None:
    """Extracts the source completely or not at all: an interrupted extraction leaves no source."""
    archive, partial = source.with_name("source.tar"), source.with_name("source.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    _run(["git", "-C", str(root), "archive", "--output", str(archive.resolve()), revision], log, revision)
    _run(["tar", "-xf", str(archive), "-C", str(partial)], log, revision)
    archive.unlink()
    partial.rename(source)


def _run(command: Sequence[str], log: Path, revision: str) -> None:
    environment = {**os.environ, "CCACHE_BASEDIR": str(log.parent)}
    with log.open("a") as file:
        try:
            status = run_in_group(command, BUILD_DEADLINE_S, stdout=file, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            raise CouldNotRun(f"{revision[:12]}: {command[0]} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise CouldNotRun(f"{revision[:12]}: {command[0]} has not ended within {BUILD_DEADLINE_S} s; its output is in {log}") from error
    if status != 0:
        raise CouldNotRun(f"{revision[:12]}: {' '.join(command[:2])} failed with status {status}; its output is in {log}")


# ---- Compiler, flags and type of a build, from CMake's files in the build folder

UNKNOWN = "unknown"


def made_with(folder: Path) -> dict[str, str]:
    """Compiler, its flags, and CMake's type of the build."""
    cache = _cache_of(folder)
    kind = cache.get("CMAKE_BUILD_TYPE", "")
    flags = " ".join(cache.get(name, "") for name in ("CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{kind.upper()}")).strip()
    return {"compiler": compiler_of(folder), "flags": flags, "type": kind if cache else UNKNOWN}


def differences(base: Path, head: Path) -> list[str]:
    """Notes on differences that do not come from the source. None where a folder lacks the information, as one that has only programs."""
    before, after = made_with(base), made_with(head)
    if UNKNOWN in (before["type"], after["type"]):
        return []
    changed = [f"{name} {before[name] or 'none'} and {after[name] or 'none'}" for name in before if before[name] != after[name]]
    return [f"the builds differ in more than their source: {', '.join(changed)}"] if changed else []


def _cache_of(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / "CMakeCache.txt").read_text().splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (re.split(r"(:[A-Z]+=)", line, maxsplit=1) for line in lines if re.match(r"\w+:[A-Z]+=", line))}


def compiler_of(folder: Path, language: str = "CXX") -> str:
    for path in folder.glob(f"CMakeFiles/*/CMake{language}Compiler.cmake"):
        text = path.read_text()
        found = [re.search(rf'set\(CMAKE_{language}_COMPILER_{name} "([^"]*)"\)', text) for name in ("ID", "VERSION")]
        if all(found):
            return " ".join(match.group(1) for match in found)
    return UNKNOWN
