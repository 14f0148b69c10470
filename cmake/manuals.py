#!/usr/bin/env python3
"""Makes man pages and bash completion of programs from each program's description of its flags (PROGRAM --describe).

    cmake/manuals.py --output FOLDER PROGRAM...

FOLDER/man1/NAME.1.gz has a page per program and per command of a program ("simulate-plan"). FOLDER/completions/lockstep completes
the words of all programs; bash looks for completions by the program's name, so that a link of each name leads there.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 60


@dataclass(frozen=True)
class Flag:
    names: str  # "-b,--minbytes"
    takes_value: bool
    default: str
    meaning: str
    group: str

    @property
    def words(self) -> list[str]:
        return self.names.split(",")


@dataclass(frozen=True)
class Command:
    """A command line: that of a program, or of one of its commands."""

    words: tuple[str, ...]  # ("simulate", "plan")
    version: str
    purpose: str
    commands: dict[str, str]  # name -> meaning
    flags: list[Flag]

    @property
    def name(self) -> str:
        return "-".join(self.words)

    def with_value(self) -> list[str]:
        return [word for flag in self.flags if flag.takes_value for word in flag.words]

    def all_words(self) -> list[str]:
        return [*self.commands, *(word for flag in self.flags for word in flag.words)]


def described(program: Path, *command: str) -> Command:
    call = [str(program), *command, "--describe"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(call)}: status {done.returncode}: {done.stderr.strip()}")
    described = json.loads(done.stdout)
    commands = {entry["name"]: entry["meaning"] for entry in described["commands"]} if not command else {}
    return Command((program.name, *command), described["version"], described["purpose"], commands, [Flag(**flag) for flag in described["flags"]])


def with_commands(program: Path) -> list[Command]:
    first = described(program)
    return [first, *(described(program, name) for name in first.commands)]


# Man pages: man(7)'s macros.

def roff(text: str) -> str:
    """Text as a line of roff: no character of it is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith(".") else text


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


def flag_entry(flag: Flag) -> list[str]:
    names = ", ".join(f"\\fB{roff(word)}\\fR" for word in flag.words)
    value = " \\fIVALUE\\fR" if flag.takes_value else ""
    default = f" Default: \\fB{roff(flag.default)}\\fR." if flag.default else ""
    return [".TP", names + value, roff(sentence(flag.meaning)) + default]


def man_page(command: Command, date: str) -> str:
    line = roff(" ".join(command.words))
    summary, *_ = command.purpose.rstrip(".").splitlines()
    page = [f'.TH "{command.name.upper()}" 1 "{date}" "Lockstep {command.version}" "Lockstep"',
            ".SH NAME", f"{roff(command.name)} \\- {roff(summary[:1].lower() + summary[1:])}",
            ".SH SYNOPSIS", f".B {line}"]
    if command.commands:
        page.append("[\\fICOMMAND\\fR]")
    page += ["[\\fIFLAG\\fR ...]", ".SH DESCRIPTION", roff(sentence(command.purpose))]
    if command.commands:
        page.append(".SH COMMANDS")
        for name, meaning in command.commands.items():
            page += [".TP", f"\\fB{line} {roff(name)}\\fR", roff(sentence(meaning))]
    page.append(".SH FLAGS")
    for group in dict.fromkeys(flag.group for flag in command.flags):
        page.append(f".SS {roff(group)}")
        for flag in command.flags:
            page += flag_entry(flag) if flag.group == group else []
    others = [f"{command.words[0]}-{name}" for name in command.commands] or list(command.words[:-1])
    if others:
        page += [".SH SEE ALSO", ", ".join(f"\\fB{roff(name)}\\fR(1)" for name in others)]
    return "\n".join(page) + "\n"


# Completion

def completion(commands: list[Command]) -> str:
    """Offers commands and flags; after a flag that takes a value, files."""
    def table(name: str, words_of: dict[str, list[str]]) -> list[str]:
        return [f"declare -A {name}=(", *(f'  [{key}]="{" ".join(words)}"' for key, words in words_of.items()), ")"]

    programs = sorted({command.words[0] for command in commands})
    return "\n".join([
        "# bash completion of Lockstep's programs. Made by cmake/manuals.py.",
        *table("_lockstep_words", {command.name: command.all_words() for command in commands}),
        *table("_lockstep_with_value", {command.name: command.with_value() for command in commands}),
        "_lockstep() {",
        '  local command=${1##*/} word=$2 previous=$3',
        '  if [ "$COMP_CWORD" -gt 1 ] && [ -n "${_lockstep_words[$command-${COMP_WORDS[1]}]-}" ]; then',
        "    command+=-${COMP_WORDS[1]}",
        "  fi",
        "  COMPREPLY=()",
        '  [[ " ${_lockstep_with_value[$command]} " == *" $previous "* ]] && return',
        '  mapfile -t COMPREPLY < <(compgen -W "${_lockstep_words[$command]}" -- "$word")',
        "}",
        f"complete -o default -F _lockstep {' '.join(programs)}",
    ]) + "\n"


def write(folder: Path, commands: list[Command]) -> None:
    built = datetime.datetime.fromtimestamp(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())), datetime.timezone.utc)
    date = f"{built:%Y-%m-%d}"
    for name in ("man1", "completions"):  # no page of a program that is gone stays
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    for command in commands:
        page = gzip.compress(man_page(command, date).encode(), mtime=0)
        (folder / "man1" / f"{command.name}.1.gz").write_bytes(page)
    for program in {command.words[0] for command in commands}:
        (folder / "completions" / program).symlink_to("lockstep")
    (folder / "completions" / "lockstep").write_text(completion(commands), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("programs", nargs="+", type=Path, metavar="PROGRAM")
    options = parser.parse_args()
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = [command for commands in pool.map(with_commands, options.programs) for command in commands]
    write(options.output, found)


if __name__ == "__main__":
    main()
