import pytest

from reports.analysis.results import analyse
from reports.load import load
from reports.tests.world import World, write


@pytest.fixture
def analysis_of(tmp_path):
    """Writes dictionaries to a record file, loads it, and returns (records, analysis)."""

    def make(*record_lists):
        files = [write(tmp_path / f"r{i}.jsonl", records) for i, records in enumerate(record_lists)]
        records = load(files)
        return records, analyse(records)

    return make


@pytest.fixture
def simple_file(tmp_path):
    world = World()
    return write(tmp_path / "simple.jsonl", [world.run()] + world.sweep(["ring", "double_tree"], [8, 4096, 1 << 20])
                 + world.send_recv())
