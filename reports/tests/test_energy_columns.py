"""A table has columns for energy where something counted it; a line without it has dashes there."""
from reports.analysis.training.sharding import analyse_sharding
from reports.html.sharding_view import sharding_table
from reports.tests.test_overview import sharding
from reports.tests.world import World

ENERGY = {"source": "rapl", "devices": 1, "steps": 5, "seconds": 2.5, "joules_a_step": 31.25, "watts": 62.5,
          "tokens_per_joule": 16.384}


def _table(analysis_of, *lines):
    run = World(ranks=2, run_name="zero", run_fields={"program": "zero_bench"}).run()
    records, _ = analysis_of([run, *lines])
    return sharding_table(analyse_sharding(records)[0])


def _texts(line):
    return [cell.text for cell in line.cells]


def test_lines_that_were_counted_show_it_and_others_have_dashes(analysis_of):
    table = _table(analysis_of, sharding(0), {**sharding(1), "energy": ENERGY})
    assert [column.name for column in table.columns[-4:]] == ["tokens/J", "J per step", "W", "of"]
    without, counted = (_texts(line) for line in table.lines)
    assert counted[-4:] == ["16.38", "31.25", "62.5", "1 CPU package"]
    assert without[-4:] == ["–"] * 4


def test_where_nothing_was_counted_there_are_no_columns(analysis_of):
    table = _table(analysis_of, sharding(0), sharding(1))
    assert table.columns[-1].name == "status" and len(_texts(table.lines[0])) == len(table.columns)
