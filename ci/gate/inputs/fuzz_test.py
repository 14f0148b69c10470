"""Files changed at random: the readers of reports and of the gate take each, or refuse it in one line that names the file.

CI tries 100 of each, LOCKSTEP_FUZZ_INPUTS=100000 as many as a change of a reader should see. A failure names the
seed and the number of the input, of which the input is a function.
"""
from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gate.inputs import files
from gate.inputs.files_for_tests import all_reduce_line, google, kernel_line, run_line, text_of
from gate.model import UsageError
from reports import kineto
from reports.report import report_of
from reports.load import load
from reports.records import Simulation
from reports.schema import ReportError
from reports.tests.test_foreign import NCCL_JSON, OSU, OSU_PAIRS
from reports.tests.test_kineto import Profile, simulated
from reports.tests.world import ContextWorld, LayerWorld, World

INPUTS = int(os.environ.get("LOCKSTEP_FUZZ_INPUTS", "100"))
SEED = int(os.environ.get("LOCKSTEP_FUZZ_SEED", "1"))
LONGEST_S = 10
HOSTILE = ("0", "-1", "1e400", "-1e400", "1e308", "NaN", "Infinity", "null", "true", "[]", "{}", '""', '"x"', "99999999999999999999", "1.5",
           "[" * 2000, "{", "}", '"', ",", "\\u0000", "\n", "\x00", "\xe9", "9" * 400, "9" * 5000)


def changed(text: str, others: tuple[str, ...], draw: random.Random) -> bytes:
    """A text with up to four changes, as UTF-8, or with bytes that are not."""
    for _ in range(draw.randint(1, 4)):
        begin = draw.randint(0, len(text))
        end = min(len(text), begin + draw.choice((0, 1, 1, 2, 8, 40)))
        way = draw.randrange(6)
        if way == 0:  # a value
            places = [i for i, c in enumerate(text) if c in ":,[" and i + 1 < len(text)]
            begin = draw.choice(places) + 1 if places else 0
            end = min((at for at in (text.find(c, begin) for c in ",]}") if at >= 0), default=len(text))
        if way <= 2:
            text = text[:begin] + draw.choice(HOSTILE) + text[end:]
        elif way == 3:
            text = text[:begin] + text[begin:end] * draw.randint(0, 3) + text[end:]
        elif way == 4:
            lines = text.splitlines(keepends=True)
            draw.shuffle(lines)
            text = "".join(lines[: draw.randint(0, len(lines))])
        else:
            other = draw.choice(others)
            text = text[:begin] + other[draw.randint(0, len(other)):]
    data = text.encode()
    return data if draw.randrange(10) else data[: len(data) // 2] + b"\xff\xfe" + data[len(data) // 2:]


@dataclass(frozen=True)
class Reader:
    name: str
    suffix: str
    read: Callable[[Path], object]
    refusal: type[Exception]
    examples: tuple[str, ...]


def _records() -> tuple[str, ...]:
    world, layers, context = World(samples=2, ranks=4), LayerWorld(), ContextWorld()
    return (text_of([world.run(), *world.sweep(["ring", "tree"], [8, 4096, 1 << 20])]),
            text_of([layers.run(), layers.layer()]), text_of([context.run(), context.context()]),
            text_of([run_line("k"), kernel_line("k", "gelu_fwd", "memory", [1.0, 2.0], 8)]),
            text_of([run_line("a", program="all_reduce_perf"), all_reduce_line("a", [3.0, 4.0], 1024)]))


def _profiles() -> tuple[str, ...]:
    """PyTorch's traces, of which one has its collectives' numbers on the host."""
    return tuple(json.dumps({"traceEvents": Profile(2, metadata).events, "baseTimeNanoseconds": 1, "distributedInfo": {"world_size": 2},
                             "deviceProperties": [{"name": "GPU"}]}) for metadata in (True, False))


@functools.cache
def _simulation(folder: Path) -> Simulation:
    return kineto.simulation_in(simulated(folder))


def _read_profile(path: Path) -> object:
    return kineto.records_of([kineto.Reader(str(path), 1).read()], _simulation(path.parent))


NCCL = """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   1 on  host device  0 [0000:1b:00] NVIDIA A100
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
           8             2     float     sum      -1     5.00    0.00    0.00       0     4.90    0.00    0.00       0
     1048576        262144     float     sum      -1    50.00   20.97   20.97       0    49.00   21.40   21.40     N/A
"""
READERS = (
    Reader("reports", ".jsonl", lambda path: report_of(load([str(path)])), ReportError, _records()),
    Reader("reports_osu", ".txt", lambda path: load([str(path)], ranks=4), ReportError, (OSU, OSU_PAIRS)),
    Reader("reports_nccl_json", ".json", lambda path: load([str(path)]), ReportError, (json.dumps(NCCL_JSON),)),
    Reader("kineto", ".json", _read_profile, ReportError, _profiles()),
    Reader("gate_records", ".jsonl", lambda path: files.read([str(path)], "--base"), UsageError, _records()),
    Reader("gate_google", ".json", lambda path: files.read([str(path)], "--base"), UsageError, (google({"a": [1.0, 2.0], "b": [3.0]}),)),
    Reader("gate_nccl_text", ".txt", lambda path: files.read([str(path)], "--base"), UsageError, (NCCL,)),
    Reader("gate_any", ".out", lambda path: files.read([str(path)], "--base"), UsageError,
           (NCCL, google({"a": [1.0]}), _records()[0], json.dumps({"results": [], "context": {}}))),
)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_changed_file_is_read_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / f"file{reader.suffix}"
    for text in reader.examples[:1]:
        path.write_text(text, encoding="utf-8")
        reader.read(path)
    wrong, refused = [], 0
    for number in range(INPUTS):
        draw = random.Random(f"{SEED} {reader.name} {number}")
        path.write_bytes(changed(draw.choice(reader.examples), reader.examples, draw))
        began = time.monotonic()
        try:
            reader.read(path)
        except reader.refusal as error:
            refused += 1
            if "\n" in str(error) or path.name not in str(error):
                wrong.append(f"seed {SEED}, input {number}: not one line that names the file: {str(error)[:200]!r}")
        except Exception as error:  # noqa: BLE001: anything else is what this test looks for
            wrong.append(f"seed {SEED}, input {number}: {type(error).__name__}: {str(error)[:200]}")
        if time.monotonic() - began > LONGEST_S:
            wrong.append(f"seed {SEED}, input {number}: takes {time.monotonic() - began:.0f} s")
    assert wrong == []
    assert 0 < refused
