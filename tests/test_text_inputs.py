"""Text files as Windows writes them, with a byte-order mark and carriage returns, are read like others; UTF-16 is refused by name."""

from __future__ import annotations

import codecs

import pytest

from conftest import ROOT

USAGE = 6
PLAN = "plan all_gather mine ranks=2 root=0 chunks=1 scratch=0\nrank 0 lane 0\ncopy output[0] <- input[0]\nsend input[0] -> 1\n" \
    "recv output[1] <- 1\nrank 1 lane 0\ncopy output[1] <- input[0]\nsend input[0] -> 0\nrecv output[0] <- 0\n"


def machine() -> str:
    return (ROOT / "simulator/machine/machines/dgx-h100.json").read_text(encoding="utf-8")


READERS = {
    "machine": (machine, "m.json", ["simulate", "--machine", "{f}", "--layout", "pp=2,batch=8"]),
    "schedule": (lambda: "0F0,0B0\n1F0,1B0\n", "s.csv", ["pipeline_perf", "--csv", "{f}"]),
    "plan": (lambda: PLAN, "p.plan", ["all_gather_perf", "--algo", "ring", "--ranks", "2", "--plan", "{f}", "--print-plan"]),
    "suite": (lambda: "# a comment\none 1 simulate --layout pp=2,batch=8\n", "s.suite", ["suite", "--suite", "{f}", "--list"]),
}


@pytest.mark.parametrize("reader", READERS)
def test_marks_and_carriage_returns_change_nothing(programs, tmp_path, reader):
    text, name, command = READERS[reader]
    file = tmp_path / name

    def run(content: bytes):
        file.write_bytes(content)
        return programs.run(*(word.replace("{f}", str(file)) for word in command))

    unix = run(text().encode())
    windows = run(codecs.BOM_UTF8 + text().replace("\n", "\r\n").encode())
    assert unix.returncode == windows.returncode == 0, unix.stderr + windows.stderr
    lines = [[line for line in window.stdout.splitlines() if "million/s" not in line] for window in (unix, windows)]  # the simulator's own time
    assert lines[0] == lines[1]
    wide = run(text().encode("utf-16"))
    assert wide.returncode == USAGE and f"{file}: is in UTF-16; allowed: UTF-8\n" in wide.stderr
