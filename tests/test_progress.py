"""Long work on a terminal shows how far it is, and Ctrl-C reports what was kept; nothing of this goes to a pipe."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import conftest

SWEEP = ("all_reduce_perf", "--ranks", "2", "-b", "1K", "-e", "1M", "-f", "2", "--run_cycles", "10000")


def heed_ctrl_c() -> None:
    """In a child: commands that a shell starts in the background ignore Ctrl-C, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_a_terminal(command: list[str], seconds: float, interrupt: bool = False) -> tuple[str, int]:
    """Output of a program on a terminal, and its exit status. Ctrl-C is pressed after `seconds`, or the program has ended."""
    process, terminal = pty.fork()
    if process == 0:
        heed_ctrl_c()
        os.execv(command[0], command)
    deadline = time.monotonic() + seconds
    text, pressed = b"", False
    while time.monotonic() < deadline + 60:
        if interrupt and not pressed and time.monotonic() > deadline:
            os.write(terminal, b"\x03")
            pressed = True
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        text += part
    else:
        os.kill(process, signal.SIGKILL)  # it has not ended in time
    return text.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def path_of(programs, name: str) -> str:
    return str(programs.folder / name)


def test_ctrl_c_ends_a_line_of_progress_and_says_what_was_kept(programs, tmp_path):
    out = tmp_path / "r.jsonl"
    text, status = on_a_terminal([path_of(programs, SWEEP[0]), *SWEEP[1:], "--json", str(out)], 8, interrupt=True)
    assert status == 130, text
    assert "\r\x1b[K" in text and " of 110000 rows, " in text and " left" in text
    kept = tmp_path / "r.partial.jsonl"
    assert f"\x1b[Kall_reduce_perf: interrupted; kept: {kept} ({len(conftest.records_of(kept))} lines)" in text
    assert not out.exists()


@pytest.mark.parametrize("with_json", [True, False])
def test_nothing_is_shown_and_nothing_stays_in_a_pipe(programs, tmp_path, with_json):
    words = ["--json", str(tmp_path / "plan.jsonl")] if with_json else []
    command = [path_of(programs, "simulate"), "plan", "--model", "gpt3-175b", "--gpus", "4096", "--batch", "4096", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "simulate: interrupted; nothing was kept\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_suite_names_its_folder(programs, tmp_path):
    suite, out = tmp_path / "s.suite", tmp_path / "out"
    suite.write_text("short 1 simulate --layout pp=2,batch=8\nlong 1 " + " ".join(SWEEP) + "\n")
    text, status = on_a_terminal([path_of(programs, "suite"), "--suite", str(suite), "--out", str(out)], 8, interrupt=True)
    assert status == 130, text
    assert " of 2 lines, " in text and ": long" in text
    assert f"suite: interrupted; kept: {out} (" in text
    assert (out / "short.jsonl").exists()
    assert all(len(conftest.records_of(line)) > 1 for line in out.glob("*.partial.jsonl"))


def test_an_interrupted_report_leaves_nothing(tmp_path, monkeypatch):
    code = ("import sys, signal\nsys.path.insert(0, sys.argv[1])\nimport reports.__main__ as m\n"
            "def press(*_):\n    signal.raise_signal(signal.SIGINT)\nm.load = press\nsys.exit(m.main(['x.jsonl', '-o', sys.argv[2]]))")
    done = subprocess.run([sys.executable, "-c", code, str(conftest.ROOT), str(tmp_path / "page")], capture_output=True, text=True, check=False,
                          preexec_fn=heed_ctrl_c)
    assert (done.returncode, done.stderr) == (130, "reports: interrupted; nothing was written\n")
    assert list(tmp_path.iterdir()) == []
