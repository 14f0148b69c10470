"""The frame of every study: flags that studies share, programs to build, a Python with PyTorch, and commands whose failure is named.

A study is a module with `TARGETS` (of the build), `add_flags(parser)` and `run(options)`; its docstring is its help.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Two threads on two cores, each on its own. oneDNN and MKL take the widest instructions that the processor has.
BOUND_THREADS = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}


def fail(text: str) -> None:
    raise SystemExit(f"compare: {text}")


def flag(parser: argparse.ArgumentParser, name: str, default: str | int | float, what: str) -> None:
    """A flag with a default, of the default's type."""
    parser.add_argument(name, type=type(default), default=default, help=f"{what} (default: {str(default).replace('%', '%%')})")


def last_line(text: str) -> str:
    """Returns a compiler's first error, else a program's last line."""
    lines = text.strip().splitlines() or ["no output"]
    return next((line for line in lines if " error: " in line), lines[-1])


def output_of(command: list[object], seconds: float = 900, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        fail(f"{words[0]} did not end within {seconds:g} s")
    if done.returncode != 0:
        fail(f"{' '.join(words)}: status {done.returncode}: {last_line(done.stderr or done.stdout)}")
    return done.stdout


def attempt(file: Path, command: list[object], seconds: float = 300, keep: bool = False, **environment: str) -> str:
    """Writes a peer's output to the file and returns its stderr. A library that fails or hangs is named and left out, or, with
    `keep`, counts with the rows that it has printed."""
    words = [str(word) for word in command]
    with file.open("w", encoding="utf-8") as out:
        try:
            done = subprocess.run(words, env={**os.environ, **environment}, stdout=out, stderr=subprocess.PIPE, text=True,
                                  timeout=seconds, check=False)
            failure, errors = done.returncode and last_line(done.stderr), done.stderr
        except subprocess.TimeoutExpired:
            failure, errors = f"not done within {seconds:g} s", ""
    if failure:
        print(f"{file.stem} failed: {failure}", file=sys.stderr)
        if not keep:
            file.unlink()
    return errors


def built(build: Path, targets: list[str]) -> None:
    if not (build / "CMakeCache.txt").is_file():
        output_of(["cmake", "--preset", "release", "-B", build, "-S", ROOT])
    printed = output_of(["cmake", "--build", build, "--target", *targets], seconds=7200)
    print(*(line for line in printed.splitlines() if line.startswith("peers:")), sep="\n", end="", file=sys.stderr)


IN_TORCH = ("experts",)  # studies that run in a Python that has PyTorch, on two cores


def python_with_torch() -> str:
    """The Python that TORCH of the environment names; else one under build/, with the newest PyTorch that pip installs."""
    own = ROOT / "build/torch/bin/python"
    if (named := os.environ.get("TORCH")) is None and not list(own.parent.parent.glob("lib/*/site-packages/torch/version.py")):
        output_of(["/usr/bin/python3", "-m", "venv", own.parent.parent])
        output_of([own, "-m", "pip", "install", "--quiet", "torch", "numpy"], seconds=3600)
    return named or str(own)


def folder_of_results(options: argparse.Namespace) -> Path:
    """The empty folder --out."""
    for path in options.out.glob("*") if options.out.is_dir() else ():
        if path.is_file():
            path.unlink()
    options.out.mkdir(parents=True, exist_ok=True)
    return options.out


def run_in_torch(name: str, words: list[str]) -> None:
    """Starts anew in a Python that has PyTorch; returns if this is one."""
    python = python_with_torch()
    if os.path.abspath(sys.executable) == os.path.abspath(python):
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    os.chdir(ROOT)
    os.execve(python, [python, "-m", "compare", name, *words], {**os.environ, "TORCH": python, "OMP_NUM_THREADS": "2", **BOUND_THREADS})


def run(name: str, words: list[str]) -> int:
    if name in IN_TORCH and not {"-h", "--help"} & set(words):
        run_in_torch(name, words)
    study = importlib.import_module(f"compare.{name}")
    parser = argparse.ArgumentParser(prog=f"python3 -m compare {name}", description=study.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="build folder (default: build/release)")
    parser.add_argument("--out", type=Path, default=ROOT / f"out/compare_{name}", help=f"folder of results (default: out/compare_{name})")
    study.add_flags(parser)
    options = parser.parse_args(words)
    os.chdir(ROOT)
    if study.TARGETS:
        built(options.build, study.TARGETS)
    study.run(options)
    return 0
