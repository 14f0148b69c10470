"""Training runs whose activations are kept in parts, or off the device."""
from reports.analysis.report import report_of
from reports.html.training_view import activation_tables
from reports.load import load
from reports.tests.training_world import TrainingWorld, layout
from reports.tests.world import write



def test_the_table_has_what_was_copied(tmp_path):
    world = TrainingWorld()
    here = world.training(20, layout=layout(tp=2), basis=world.basis)
    away = world.training(20, layout=layout(tp=2), basis=world.basis)
    away["layout"]["text"] += ",offload=activations:file"
    away["activations"] = {"place": "file", "partitioned": True, "ahead": 2, "copied_bytes": 6 * (1 << 20), "away_bytes": 3 * (1 << 20)}
    result, = report_of(load([write(tmp_path / "r.jsonl", [world.run(), here, away])])).trainings
    table, = activation_tables(result)
    kept = {line.cells[1].text: [cell.text for cell in line.cells[2:5]] for line in table.lines}
    assert set(kept) == {"on the device", "in files, in parts"}
    assert kept["in files, in parts"][0] == "2" and "6" in kept["in files, in parts"][1] and "3" in kept["in files, in parts"][2]


def test_there_is_no_table_where_all_stay_on_the_device(tmp_path):
    world = TrainingWorld()
    file = write(tmp_path / "r.jsonl", [world.run(), world.training(20, layout=layout(tp=2), basis=world.basis)])
    result, = report_of(load([file])).trainings
    assert activation_tables(result) == []
