"""simulate --chakra and simulate replay: files that another decoder reads, graphs that hold together, and the time of the step."""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Iterator

import pytest

import conftest

USAGE = 6
MEM, COMP, SEND, RECV, COLL = (2, 3), 4, 5, 6, 7  # NodeType of Chakra's et_def.proto
COLLECTIVES = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}  # CollectiveCommType
STEP = ("--model", "gpt3-1.3b", "--machine", "dgx-a100", "--layout", "tp=2,pp=2,dp=2,batch=8,sp=yes,zero=2")


# A decoder of protobuf's wire format (protobuf.dev/programming-guides/encoding) of its own, so that the writer's errors show.


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        else:
            assert key & 7 == 0, "the writer has varints and bytes only"
        yield key >> 3, value
    assert at == len(data)


def messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        yield data[at:at + length]
        at += length
    assert at == len(data)


def packed(data: bytes) -> list[int]:
    at, found = 0, []
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def node_of(data: bytes) -> dict[str, Any]:
    node: dict[str, Any] = {"deps": [], "attr": {}, "us": 0}
    for number, value in fields(data):
        if number == 10:
            attribute = dict(fields(value))
            name = attribute.pop(1).decode()
            (kind, content), = attribute.items()
            # Types that ASTRA-sim's and Chakra's feeders read.
            wanted = {"is_cpu_op": 27, "comm_src": 7, "comm_dst": 7, "comm_tag": 7}.get(name, 29 if isinstance(content, bytes) else 9)
            assert kind == wanted, name
            node["attr"][name] = content.decode() if isinstance(content, bytes) else content
        elif number == 5:
            node["deps"] += packed(value)
        else:
            node[{1: "id", 2: "name", 3: "type", 7: "us"}[number]] = value
    return node


def trace_of(folder: Path, ranks: int) -> list[list[dict[str, Any]]]:
    traces = []
    for rank in range(ranks):
        first, *nodes = messages((folder / f"step.{rank}.et").read_bytes())
        assert dict(fields(first)) == {1: b"0.0.4"}  # GlobalMetadata.version
        traces.append([node_of(node) for node in nodes])
    assert not (folder / f"step.{ranks}.et").exists()
    return traces


@pytest.fixture(name="written", scope="module")
def _written(programs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("chakra")
    done = programs.run("simulate", *STEP, "--chakra", str(folder / "step"), "--json", str(folder / "s.jsonl"))
    assert done.returncode == 0, done.stderr
    return folder


def test_each_rank_has_a_graph_without_cycles_that_ends_what_it_begins(written):
    groups = json.loads((written / "step.groups.json").read_text())
    sent, received = Counter(), Counter()
    order = defaultdict(dict)  # group -> rank -> its collectives
    for rank, nodes in enumerate(trace_of(written, 8)):
        seen: set[int] = set()
        last_of_lane: dict[str, int] = {}
        for node in nodes:
            assert set(node["deps"]) <= seen and node["id"] not in seen  # each behind what it depends on: no cycle
            seen.add(node["id"])
            attr = node["attr"]
            assert last_of_lane.get(attr["lane"], node["id"]) in (*node["deps"], node["id"])  # a lane is a stream, in order
            last_of_lane[attr["lane"]] = node["id"]
            assert node["type"] in (COMP, SEND, RECV, COLL)
            if node["type"] in (SEND, RECV):
                (sent if node["type"] == SEND else received)[attr["comm_src"], attr["comm_dst"], attr["comm_tag"], attr["comm_size"]] += 1
                assert attr["comm_src" if node["type"] == SEND else "comm_dst"] == rank
            if node["type"] == COLL:
                assert rank in groups[attr["pg_name"]] and int(attr["pg_name"]) > 0  # ASTRA-sim takes 0 for all ranks
                order[attr["pg_name"]].setdefault(rank, []).append((attr["comm_type"], attr["comm_size"]))
            if node["type"] == COMP:
                assert node["us"] == (attr["duration_ps"] + 500_000) // 1_000_000
    assert sent == received and sum(sent.values()) > 0 and max(sent.values()) == 1
    for name, of in order.items():
        assert sorted(of) == sorted(groups[name]) and len({tuple(line) for line in of.values()}) == 1


def test_bytes_are_those_that_the_simulator_counts(written):
    (simulation,) = [line for line in conftest.records_of(written / "s.jsonl") if line["record"] == "simulation"]
    groups = json.loads((written / "step.groups.json").read_text())
    counted = []
    for nodes in trace_of(written, 8):
        bytes_of: dict[str, float] = defaultdict(float)
        for node in nodes:
            attr = node["attr"]
            if node["type"] == SEND:
                bytes_of["messages"] += attr["comm_size"]
            if node["type"] == COLL:
                n = len(groups[attr["pg_name"]])
                share = {"all_reduce": 2 * (n - 1) / n, "all_gather": n - 1, "reduce_scatter": (n - 1) / n}[COLLECTIVES[attr["comm_type"]]]
                bytes_of[attr["group"]] += share * attr["comm_size"]
        counted.append(dict(bytes_of))
    assert any(line == pytest.approx(simulation["sent_bytes"]) for line in counted)  # the record has the rank that computes longest


def test_a_replay_takes_as_long_as_the_simulated_step(written, programs):
    (simulation,) = [line for line in conftest.records_of(written / "s.jsonl") if line["record"] == "simulation"]
    done = programs.run("simulate", "replay", "--chakra", str(written / "step"), "--machine", "dgx-a100", "--trace", str(written / "p.json"))
    assert done.returncode == 0, done.stderr
    assert f"# step: {simulation['step_ms']:.3f} ms" in done.stdout
    for name, ms in simulation["parts_ms"].items():
        assert re.search(rf"#   {name} +{ms:.3f} ms", done.stdout), (name, done.stdout)
    end = max(load["ts"] + load["dur"] for load in json.loads((written / "p.json").read_text())["traceEvents"] if load["ph"] == "X")
    assert end == pytest.approx(1e3 * simulation["step_ms"], abs=1)
    measuring = re.findall(r"^#   (\w+_perf) --ranks (\d+) -b (\d+) -e \3$", done.stdout, re.M)
    assert ("reduce_scatter_perf", "2") in [line[:2] for line in measuring]


class Player:
    """Runs a trace by the rules of ASTRA-sim (astra-sim/workload/Workload.cc, HardwareResource.cc, as of 2025): a rank issues nodes
    whose dependencies have ended, smallest number first, and runs one CPU node, one compute node, and one collective or send at a
    time; receives take no place. The k-th collective that each member of a group issues is one. Times are in ns, any will do."""

    def __init__(self, traces: list[list[dict[str, Any]]], groups: dict[str, list[int]]) -> None:
        self.nodes = [{node["id"]: node for node in trace} for trace in traces]
        self.groups, self.now, self.events = groups, 0, []
        self.waits = [{node["id"]: len(node["deps"]) for node in trace} for trace in traces]
        self.next: list[dict[int, list[int]]] = [defaultdict(list) for _ in traces]
        for rank, trace in enumerate(traces):
            for node in trace:
                for line in node["deps"]:
                    self.next[rank][line].append(node["id"])
        self.ready = [{id_ for id_, count in waits.items() if count == 0} for waits in self.waits]
        self.busy: list[set[str]] = [set() for _ in traces]
        self.issued: list[Counter] = [Counter() for _ in traces]
        self.meetings: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.arrivals: dict[tuple[int, ...], int] = {}
        self.receives: dict[tuple[int, ...], tuple[int, int]] = {}

    def nodes_left(self) -> int:
        for rank in range(len(self.nodes)):
            self._issue(rank)
        left = sum(map(len, self.nodes))
        while self.events:
            self.now, rank, id_ = heapq.heappop(self.events)
            self.busy[rank].discard(self._place(self.nodes[rank][id_]))
            left -= 1
            for line in self.next[rank][id_]:
                self.waits[rank][line] -= 1
                if self.waits[rank][line] == 0:
                    self.ready[rank].add(line)
            self._issue(rank)
        return left

    @staticmethod
    def _place(node: dict[str, Any]) -> str:
        if node["type"] == COMP:
            return "cpu" if node["attr"]["is_cpu_op"] else "compute"
        return "" if node["type"] == RECV else "communication"

    def _issue(self, rank: int) -> None:
        for id_ in sorted(self.ready[rank]):
            node = self.nodes[rank][id_]
            if self._place(node) in self.busy[rank]:
                continue
            self.ready[rank].remove(id_)
            self.busy[rank] |= {self._place(node)} - {""}
            self._start(rank, node)

    def _start(self, rank: int, node: dict[str, Any]) -> None:
        attr, ended = node["attr"], []
        if node["type"] == COMP:
            ended = [(self.now + 1 + 1000 * node["us"], rank, node["id"])]
        elif node["type"] == COLL:
            group = attr["pg_name"]
            meeting = self.meetings[group, self.issued[rank][group]]
            self.issued[rank][group] += 1
            meeting.append((rank, node["id"]))
            assert len({(self.nodes[r][i]["attr"]["comm_type"], self.nodes[r][i]["attr"]["comm_size"]) for r, i in meeting}) == 1
            if len(meeting) == len(self.groups[group]):
                ended = [(self.now + 1000 + attr["comm_size"] // 100, *member) for member in meeting]
        else:
            key = (attr["comm_src"], attr["comm_dst"], attr["comm_tag"])
            if node["type"] == SEND:
                self.arrivals[key] = self.now + 1000 + attr["comm_size"] // 100
                ended = [(self.arrivals[key], rank, node["id"])]
            else:
                self.receives[key] = (rank, node["id"])
            if key in self.arrivals and key in self.receives:
                ended.append((max(self.now, self.arrivals[key]), *self.receives[key]))
        for event in ended:
            heapq.heappush(self.events, event)


@pytest.mark.parametrize("layout", [
    "tp=2,pp=2,dp=2,batch=8,sp=yes,zero=2", "dp=4,batch=8,zero=3", "tp=2,pp=4,dp=2,batch=16,schedule=zb_h1", "tp=2,cp=2,pp=2,dp=2,batch=16",
    "tp=2,pp=2,dp=4,batch=32,zero=2,schedule=interleaved,chunks=2", "dp=8,zero=3,shard_ranks=4,batch=16"])
def test_traces_end_by_the_rules_of_astra_sim(programs, tmp_path, layout):
    model = "hidden=64,layers=4,heads=2,vocabulary=128,sequence=32"
    done = programs.run("simulate", "--model", model, "--machine", "dgx-a100", "--layout", layout, "--chakra", str(tmp_path / "step"))
    assert done.returncode == 0, done.stderr
    traces = trace_of(tmp_path, len(list(tmp_path.glob("step.*.et"))))
    groups = json.loads((tmp_path / "step.groups.json").read_text())
    assert Player(traces, groups).nodes_left() == 0
    last = [node for node in traces[0] if node["type"] in (COLL, RECV)][-1]
    traces[0].remove(last)  # without its partner a trace does not end: the test would see it
    for node in traces[0]:
        node["deps"] = [line for line in node["deps"] if line != last["id"]]
    assert Player(traces, groups).nodes_left() > 0


def test_googles_protobuf_reads_the_files(written):
    pb = pytest.importorskip("google.protobuf.descriptor_pb2", reason="python3-protobuf is not installed")
    from google.protobuf import descriptor_pool, message_factory

    kinds = pb.FieldDescriptorProto
    proto = pb.FileDescriptorProto(name="et_def.proto", package="chakra", syntax="proto3")
    for name, members in (
        ("Attribute", (("name", 1, kinds.TYPE_STRING), ("int32_val", 7, kinds.TYPE_INT32), ("int64_val", 9, kinds.TYPE_INT64),
                       ("bool_val", 27, kinds.TYPE_BOOL), ("string_val", 29, kinds.TYPE_STRING))),
        ("Node", (("id", 1, kinds.TYPE_UINT64), ("name", 2, kinds.TYPE_STRING), ("type", 3, kinds.TYPE_INT32),
                  ("data_deps", 5, kinds.TYPE_UINT64), ("duration_micros", 7, kinds.TYPE_UINT64), ("attr", 10, kinds.TYPE_MESSAGE)))):
        made = proto.message_type.add(name=name)
        for field, number, kind in members:
            many = field in ("data_deps", "attr")
            line = made.field.add(name=field, number=number, type=kind, label=kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL)
            if kind == kinds.TYPE_MESSAGE:
                line.type_name = ".chakra.Attribute"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    descriptor = pool.FindMessageTypeByName("chakra.Node")
    new = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    for rank, nodes in enumerate(trace_of(written, 8)):
        _, *rest = messages((written / f"step.{rank}.et").read_bytes())
        read = [new(descriptor).FromString(message) for message in rest]
        assert [(node.id, node.type, list(node.data_deps), node.duration_micros) for node in read] == [
            (node["id"], node["type"], node["deps"], node["us"]) for node in nodes]
        assert [{attribute.name for attribute in node.attr} for node in read] == [set(node["attr"]) for node in nodes]


# Traces of other programs, written here after et_def.proto: an id, a name, a type, data dependencies, and attributes.


def number_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number_bytes(number << 3) + number_bytes(value)
    return number_bytes(number << 3 | 2) + number_bytes(len(value)) + value


def foreign_node(id_: int, name: str, kind: int, deps: tuple[int, ...] = (), us: int = 0, **attributes: int | str) -> bytes:
    body = field(1, id_) + field(2, name.encode()) + field(3, kind) + b"".join(field(5, dep) for dep in deps) + field(7, us)
    for key, value in attributes.items():
        text = isinstance(value, str)
        body += field(10, field(1, key.encode()) + field(29 if text else 9, value.encode() if text else value))
    return body


def write_foreign(folder: Path, nodes: list[bytes], ranks: int = 2, name: str = "other") -> str:
    for rank in range(ranks):
        whole = [field(1, b"0.0.4"), *nodes]
        (folder / f"{name}.{rank}.et").write_bytes(b"".join(number_bytes(len(line)) + line for line in whole))
    return str(folder / name)


def replayed(programs, prefix: str, *flags: str, machine: str = "dgx-h100"):
    done = programs.run("simulate", "replay", "--chakra", prefix, "--machine", machine, *flags)
    assert done.returncode == 0, done.stderr
    parts = {name: float(ms) for name, ms in re.findall(r"^#   (\w+) +([\d.]+) ms", done.stdout, re.M)}
    total = float(re.search(r"^# step: ([\d.]+) ms", done.stdout, re.M)[1])
    assert sum(parts.values()) == pytest.approx(total, abs=0.001 * len(parts)), done.stdout
    return done, parts, total


def test_a_foreign_step_is_listed_by_kind_and_its_parts_add_up(programs, tmp_path):
    groups = {"a": [0, 1, 2, 3], "b": [3, 2, 1, 0]}
    (tmp_path / "comm_group.json").write_text(json.dumps(groups))
    nodes = [foreign_node(1, "gemm \"fwd\"", COMP, us=1000),
             foreign_node(2, "one", COLL, (1,), comm_type=0, comm_size=1 << 20, pg_name="a", comm_priority=3),
             foreign_node(3, "two", COLL, (2,), comm_type=0, comm_size=1 << 20, pg_name="b"),
             foreign_node(4, "shards", COLL, (3,), comm_type=2, comm_size=1 << 20, pg_name="b"),
             foreign_node(5, "data loader", COMP, (4,), us=40, is_cpu_op=1),
             foreign_node(6, "weights", 2, (5,), us=30),
             foreign_node(7, "gemm_bwd", COMP, (6,), us=500)]
    done, parts, total = replayed(programs, write_foreign(tmp_path, nodes, ranks=4), "--trace", str(tmp_path / "t.json"))
    assert parts["compute"] == 1.5 and parts["exposed_host"] == 0.04 and parts["exposed_memory"] == 0.03
    assert set(parts) == {"compute", "exposed_all_reduce", "exposed_all_gather", "exposed_host", "exposed_memory", "idle"}
    assert parts["exposed_all_reduce"] > 0 and total > 1.57
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" ")]
    assert [row[:5] for row in rows if row[0] == "all_reduce"] == [["all_reduce", "-", "4", "1048576", "2"]]  # one kind
    assert "# 2 groups of " in done.stdout
    assert done.stderr == "simulate: note: fields and attributes that are not read, and their nodes: comm_priority (4)\n"
    assert "# note: fields and attributes that are not read" in done.stdout
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert names == {"gemm \"fwd\"", "one", "two", "shards", "data loader", "weights", "gemm_bwd"}
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"compute", "collective", "host", "memory"}
    assert not {"FILL", "tensor", "gather", "reduce"} & {word for event in events for word in json.dumps(event).split('"')}


def test_sizes_without_durations_are_priced_by_the_machine(programs, tmp_path):
    nodes = [foreign_node(1, "GEMM", COMP, num_ops=10**15, tensor_size=10**9),
             foreign_node(2, "pass", COMP, (1,), num_ops=10, tensor_size=335 * 10**9),
             foreign_node(3, "load", 2, (2,), tensor_size=64 * 10**7),
             foreign_node(4, "nothing", COMP, (3,))]
    done, parts, _ = replayed(programs, write_foreign(tmp_path, nodes))
    machine = json.loads(Path(conftest.ROOT / "simulator/machine/machines/dgx-h100.json").read_text())
    flops, gbps = machine["device"]["matrix_tflops"] * 1e12, machine["device"]["memory_gbps"]
    assert parts["compute"] == pytest.approx(1e3 * (1e15 / flops + 335 / gbps), abs=0.001)
    assert parts["exposed_memory"] == pytest.approx(1e3 * 0.64 / machine["host_gbps"], abs=0.001)
    notes = done.stderr.splitlines()
    assert len(notes) == 3 and any("4 compute nodes without a duration: max(num_ops / peak" in note for note in notes)
    assert any("2 memory nodes without a duration" in note for note in notes)
    assert any("2 compute nodes without duration, num_ops and tensor_size: take no time" in note for note in notes)


def test_edges_to_dropped_nodes_are_taken_with_a_count(programs, tmp_path):
    nodes = [foreign_node(5, "aten::mm", COMP, (3,), us=1000), foreign_node(6, "sum", COLL, (5, 99), comm_type=0, comm_size=1 << 20)]
    done, parts, _ = replayed(programs, write_foreign(tmp_path, nodes))
    assert parts["compute"] == 1.0
    assert done.stderr == "simulate: note: 4 dependencies on nodes that the files do not have (converters drop nodes): left out\n"


def test_a_missing_rank_is_not_the_end_of_a_trace(programs, tmp_path):
    prefix = write_foreign(tmp_path, [foreign_node(1, "gemm", COMP, us=1)], ranks=3)
    (tmp_path / "other.1.et").unlink()
    done = programs.run("simulate", "replay", "--chakra", prefix)
    assert done.returncode == USAGE and "other.2.et exists, and " in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments, what", [
    (["replay"], "replay without --chakra; allowed: --chakra PREFIX"),
    (["replay", "--chakra", "{f}/none"], "{f}/none.0.et: cannot be read: No such file or directory"),
    (["replay", "--chakra", "{f}/step", "--groups", "{f}/s.jsonl"], "{f}/s.jsonl: not JSON"),
    (["replay", "--chakra", "{f}/few"], "few: group 1 has rank 1, and there are 1 files"),
    (["replay", "--chakra", "{f}/bad"], "{f}/bad.0.et: ends within a message"),
    (["plan", "--chakra", "{f}/x"], "--sweep, --trace or --chakra with plan"),
    (["--chakra", "{f}/x", "--sweep", "pp=1:2"], "--chakra"),
    (["--chakra", "{f}/step", "--model", "gpt2-124m", "--layout", "dp=2"], "{f}/step.2.et exists, from a step with more than these 2 ranks"),
    (["--chakra", "{f}/no/x", "--model", "gpt2-124m", "--layout", "dp=1"], "{f}/no"),
])
def test_refuses_in_one_line(written, programs, arguments, what):
    (written / "few.0.et").write_bytes((written / "step.0.et").read_bytes())
    (written / "few.groups.json").write_text('{"1": [0, 1]}')
    (written / "bad.0.et").write_bytes((written / "step.0.et").read_bytes()[:-3])
    done = programs.run("simulate", *(argument.replace("{f}", str(written)) for argument in arguments))
    assert done.returncode == USAGE, done.stdout
    assert done.stderr.count("\n") == 1 and what.replace("{f}", str(written)) in done.stderr
