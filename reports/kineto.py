"""python3 -m reports.kineto TRACES... --beside SIMULATED.jsonl -o MEASURED.jsonl: PyTorch profiler's traces as a training record.

A trace is the JSON that torch.profiler writes for one rank (export_chrome_trace, tensorboard_trace_handler; .json or .json.gz).
Events that are read: user_annotation "ProfilerStep#N" (a step), "Optimizer.step#..."; kernel, gpu_memcpy and gpu_memset (time on the
device, in microseconds); cuda_runtime and cuda_driver (what launched a kernel, by args.correlation); cpu_op
"autograd::engine::evaluate_function: ..." (backward) and record_param_comms. NCCL's kernels, or the record_param_comms with the same
External id, have "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Ranks" (names as
in torch/csrc/profiler/util.h). A send or receive that the host launched within the call of another collective (record_param_comms,
"c10d::alltoall_base_", "nccl:all_to_all") belongs to that collective. docs/traces.md describes how they are counted.
"""
import argparse
import bisect
import gzip
import hashlib
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterable, Optional

from reports.foreign import decoded, Text
from reports.lines import line_of
from reports.load import load
from reports.records import Simulation
from reports.schema import ReportError

Event = dict[str, Any]
Interval = tuple[float, float]

DTYPE_BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1,
               "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1}
# By the beginning of c10d's name without its underscore, or of NCCL's kernel: the first that fits.
COLLECTIVES = (("allreduce", "all_reduce"), ("allgather", "all_gather"), ("reducescatter", "reduce_scatter"), ("alltoall", "all_to_all"),
               ("broadcast", "broadcast"), ("reduce", "reduce"), ("sendrecv", "send_recv"), ("send", "send_recv"), ("recv", "send_recv"),
               ("barrier", "barrier"), ("gather", "gather"), ("scatter", "scatter"))
# Categories of events that are no work of the device, or are read elsewhere
HOST_CATEGORIES = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function", "gpu_user_annotation", "overhead",
                   "cuda_sync", "cuda_event", "async_cpu_op", "cpu_instant_event", "fwdbwd", "ac2g", "Trace", "None"}
KNOWN = {ours for _, ours in COLLECTIVES}
DEEPEST = 8  # calls of collectives that lie in each other: an operator, an annotation, record_param_comms
LONGEST_US = 1e12
LATEST_US = 2.0**63


@dataclass(frozen=True)
class Collective:
    name: str
    ranks: int  # 0: unknown
    stride: int  # between the members' ranks; 0: unknown, or not even
    bytes: Optional[int]  # larger of input and output: nccl-tests' size

    def part(self, tensor_ranks: int) -> str:
        """The part of the step that waiting for it counts in."""
        if self.name == "send_recv":
            return "exposed_pipeline"
        if self.name == "all_to_all" or tensor_ranks > 1 and self.ranks == tensor_ranks and self.stride == 1:
            return "exposed_tensor"
        return "exposed_gather" if self.name in ("all_gather", "broadcast") else "exposed_reduce"

    @property
    def sent_bytes(self) -> float:
        """Bytes that a rank sends by an algorithm that sends as little as possible (docs/metrics.md)."""
        if not self.bytes or self.ranks == 1:
            return 0.0
        share = (self.ranks - 1) / self.ranks if self.ranks else 1.0
        return self.bytes * {"all_reduce": 2 * share, "send_recv": 1.0}.get(self.name, share)


@dataclass(frozen=True)
class Work:
    """A kernel, copy or collective on the device."""

    begin: float
    end: float
    step: int
    part: str
    collective: Optional[Collective] = None
    call: Optional[int] = None  # the kernels of a collective's call that has several


@dataclass
class Trace:
    """A rank's profile: works by step, and the boundaries of steps on the device."""

    file: str
    steps: list[tuple[int, float]]  # number, start on the host
    works: list[Work]
    world_size: int
    gpu: str
    libraries: dict[str, str]
    started: str
    notes: list[str] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def window(self, index: int) -> Interval:
        """From the end of the step before on the device (of the first: its start on the host) to its own end."""
        return (self.ends[index - 1] if index else self.steps[0][1], self.ends[index])

    def parts_us(self, index: int) -> dict[str, float]:
        """Together the step's time. Kernels count first, then collectives, then copies; of several the one that began first."""
        begin, end = self.window(index)
        order = {"exposed_copy": 2}
        works = sorted(((order.get(work.part, 1 if work.part.startswith("exposed") else 0), work.begin, work.end, work.part)
                        for work in self.works if work.end > begin and work.begin < end))
        parts: dict[str, float] = defaultdict(float)
        free = [(begin, end)]
        for _, first, last, part in works:  # each takes what is free of its time
            left: list[Interval] = []
            at = max(bisect.bisect_right(free, (first, math.inf)) - 1, 0)
            while at < len(free) and free[at][0] < last:
                low, high = free.pop(at)
                taken = max(0.0, min(high, last) - max(low, first))
                parts[part] += taken
                left = [(a, b) for a, b in ((low, min(high, first)), (max(low, last), high)) if b > a] if taken else [(low, high)]
                free[at:at] = left
                at += len(left)
        parts["around"] = sum(high - low for low, high in free)
        return dict(parts)


def _ours(theirs_name: str) -> str:
    """The name of a collective that c10d, its operators or NCCL's kernels call otherwise."""
    short = re.sub(r"[^a-z0-9]", "", theirs_name.rpartition(":")[2].lower())
    return next((ours for theirs, ours in COLLECTIVES if short.startswith(theirs)), theirs_name[:60] or "collective")


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, with those that overlap, or lie in each other, as one."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


class Reader:
    """Makes a Trace from a file. Raises ReportError with the name of the file, and of the event if one is wrong."""

    def __init__(self, file: str, tensor_ranks: int) -> None:
        self.file, self.tensor_ranks = file, tensor_ranks
        self.source = Text(file, "")

    def read(self) -> Trace:
        data = self._load()
        self.events = [self._checked(n, event) for n, event in enumerate(data["traceEvents"]) if isinstance(event, dict) and event.get("ph") == "X"]
        for event in data["traceEvents"]:
            if not isinstance(event, dict) or event.get("ph") in ("B", "E"):
                self.source.leave("events other than complete ones (ph X), skipped", str(event)[:40])
        self.steps = self._steps()
        self.launches = {self._args(event).get("correlation"): event for event in self.events
                         if event.get("cat") in ("cuda_runtime", "cuda_driver") and self._is_key(self._args(event).get("correlation"))}
        self.comms = {self._args(event).get("External id"): self._args(event) for event in self.events
                      if event.get("name") == "record_param_comms" and self._is_key(self._args(event).get("External id"))}
        self.calls = self._calls()
        self.backward = self._spans(lambda name: name.startswith("autograd::engine::evaluate_function"))
        self.optimizer = self._spans(lambda name: name.startswith("Optimizer.step"))
        works = [work for event in self.events if (work := self._work(event)) is not None]
        if not works:
            raise ReportError(f"{self.file}: has no kernels of its steps; allowed: a profile with ProfilerActivity.CUDA")
        trace = Trace(self.file, self.steps, works, *self._about(data), notes=self.source.notes())
        self._set_ends(trace)
        return trace

    def _load(self) -> dict[str, Any]:
        try:
            with (gzip.open if self.file.endswith(".gz") else open)(self.file, "rb") as opened:
                data = json.loads(decoded(opened.read()), strict=False)
        except FileNotFoundError:
            raise ReportError(f"{self.file}: no such file") from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise ReportError(f"{self.file}: not a JSON trace: {str(error)[:100]}; allowed: what torch.profiler writes") from None
        if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
            raise ReportError(f"{self.file}: has no list traceEvents; allowed: what torch.profiler writes")
        return data

    def _checked(self, number: int, event: Event) -> Event:
        for name in ("ts", "dur"):
            value = event.get(name, 0)
            is_time = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_time or not 0 <= value <= (LONGEST_US if name == "dur" else LATEST_US):
                raise ReportError(f"{self.file}: event {number} ({str(event.get('name'))[:60]!r}): {name} is {str(value)[:40]}; "
                                  "allowed: microseconds")
        return {"dur": 0.0, "ts": 0.0, **event}

    @staticmethod
    def _args(event: Event) -> dict[str, Any]:
        args = event.get("args")
        return args if isinstance(args, dict) else {}

    @staticmethod
    def _is_key(value: Any) -> bool:
        return isinstance(value, (int, str))

    def _steps(self) -> list[tuple[int, float]]:
        found = {}
        for event in self.events:
            match = re.fullmatch(r"ProfilerStep#(\d{1,15})", str(event.get("name")))
            if match and event.get("cat") in ("user_annotation", "cpu_op"):
                found[int(match[1])] = (event["ts"], event["ts"] + event["dur"])
        if not found:
            raise ReportError(f"{self.file}: has no step; allowed: a profile whose loop calls profiler.step() (ProfilerStep#N)")
        self.step_spans = [(number, *found[number]) for number in sorted(found)]
        return [(number, begin) for number, begin, _ in self.step_spans]

    def _spans(self, is_one) -> dict[Any, list[Interval]]:
        """Times of annotations, by the host's thread."""
        spans: dict[Any, list[Interval]] = defaultdict(list)
        for event in self.events:
            if event.get("cat") in ("cpu_op", "user_annotation") and is_one(str(event.get("name"))):
                spans[str(event.get("tid"))].append((event["ts"], event["ts"] + event["dur"]))
        return {thread: merged(of) for thread, of in spans.items()}

    @staticmethod
    def _is_in(spans: dict[Any, list[Interval]], event: Event) -> bool:
        of = spans.get(str(event.get("tid")), [])
        at = bisect.bisect_right(of, (event["ts"], math.inf)) - 1
        return at >= 0 and event["ts"] <= of[at][1]

    def _calls(self) -> dict[str, list[tuple[float, float, str, Event]]]:
        """Begin, end, name and event of each call of a collective, no send or receive, by the host's thread and by begin."""
        found: dict[str, list[tuple[float, float, str, Event]]] = defaultdict(list)
        for host_event in sorted(self.events, key=lambda event: event["ts"]):
            name = str(host_event.get("name"))
            if host_event.get("cat") in ("cpu_op", "user_annotation") and (name == "record_param_comms" or re.match(r"_?c10d\w*::|nccl:", name)):
                ours = _ours(str(self._args(host_event).get("Collective name") or name))
                if ours in KNOWN - {"send_recv"}:
                    found[str(host_event.get("tid"))].append((host_event["ts"], host_event["ts"] + host_event["dur"], ours, host_event))
        return found

    def _call_around(self, launch: Optional[Event]) -> Optional[tuple[str, Event]]:
        """The innermost call of a collective within which the host launched a kernel."""
        calls = self.calls.get(str(launch.get("tid")), []) if launch else []
        at = bisect.bisect_right(calls, launch["ts"], key=lambda call: call[0]) if launch else 0
        return next(((name, event) for _, end, name, event in reversed(calls[max(at - DEEPEST, 0):at]) if launch["ts"] <= end), None)

    def _step_of(self, ts: float) -> Optional[int]:
        """Index of the step whose time on the host it is."""
        return next((n for n, (_, begin, end) in enumerate(self.step_spans) if begin <= ts < end), None)

    def _work(self, event: Event) -> Optional[Work]:
        kind, name = event.get("cat"), str(event.get("name"))
        if kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
            if str(kind) not in HOST_CATEGORIES:
                self.source.leave("events of unknown categories, skipped", str(kind))
            return None
        correlation = self._args(event).get("correlation")
        launch = self.launches.get(correlation) if self._is_key(correlation) else None
        step = self._step_of((launch or event)["ts"])
        if step is None:
            self.source.leave("kernels and copies outside of the profiled steps, skipped", name[:40])
            return None
        collective = self._collective(self._args(event), name) if kind == "kernel" else None
        is_own = collective and collective.name in KNOWN - {"send_recv"}  # not so: "SendRecv", and "Generic" of RCCL
        call = self._call_around(launch) if collective and not is_own else None
        if call:
            collective = self._collective({**self._args(call[1]), "Collective name": call[0]}, name)
        if collective:
            part = collective.part(self.tensor_ranks)
        elif kind == "gpu_memcpy" and ("HtoD" in name or "DtoH" in name):
            part = "exposed_copy"
        elif launch and self._is_in(self.optimizer, launch):
            part = "optimizer"
        else:
            part = "backward" if launch and self._is_in(self.backward, launch) else "forward"
        return Work(event["ts"], event["ts"] + event["dur"], step, part, collective, id(call[1]) if call else None)

    def _collective(self, args: dict[str, Any], name: str) -> Optional[Collective]:
        if "nccl" not in name.lower() and "Collective name" not in args:
            return None
        external = args.get("External id")
        if "Collective name" not in args and self._is_key(external):
            args = {**self.comms.get(external, {}), **args}
        ranks, stride = self._group(args)
        return Collective(_ours(str(args.get("Collective name") or re.sub(r"(?i).*nccl(dev)?kernel_", "", name))), ranks, stride, self._bytes(args))

    @staticmethod
    def _count(value: Any) -> Optional[int]:
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50 else None

    def _bytes(self, args: dict[str, Any]) -> Optional[int]:
        counts = [count for name in ("In msg nelems", "Out msg nelems") if (count := self._count(args.get(name))) is not None]
        size = DTYPE_BYTES.get(str(args.get("dtype")))
        if counts and not size:
            self.source.leave("collectives of unknown datatypes, whose bytes are left open", str(args.get("dtype")))
        return max(counts) * size if counts and size else None

    def _group(self, args: dict[str, Any]) -> tuple[int, int]:
        """Members, and the distance of their ranks. PyTorch cuts off a list of many ranks: then it has start and stride."""
        listed = args.get("Process Group Ranks")
        ranks = listed if isinstance(listed, list) else [int(event) for event in re.findall(r"\d{1,9}", str(listed))] if listed else []
        steps = {b - a for a, b in zip(ranks, ranks[1:]) if isinstance(a, int) and isinstance(b, int)}
        stride = self._count(args.get("Global rank stride")) or (steps.pop() if len(steps) == 1 else 0)
        return self._count(args.get("Group size")) or len(ranks), stride

    def _about(self, data: dict[str, Any]) -> tuple[int, str, dict[str, str], str]:
        about = data.get("distributedInfo") if isinstance(data.get("distributedInfo"), dict) else {}
        devices = data.get("deviceProperties") if isinstance(data.get("deviceProperties"), list) else []
        gpu = next((str(device.get("name"))[:80] for device in devices if isinstance(device, dict) and device.get("name")), "GPU")
        libraries = {"nccl": str(about["nccl_version"])[:20]} if about.get("nccl_version") else {}
        base = data.get("baseTimeNanoseconds")
        try:
            started = datetime.fromtimestamp(base / 1e9 + self.steps[0][1] / 1e6, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (TypeError, ValueError, OverflowError, OSError):
            started = "unknown"
        return self._count(about.get("world_size")) or 0, gpu, libraries, started

    def _set_ends(self, trace: Trace) -> None:
        for n, (number, begin, end) in enumerate(self.step_spans):
            last = max((work.end for work in trace.works if work.step == n), default=end)
            before = trace.ends[-1] if trace.ends else begin
            if last <= before:
                raise ReportError(f"{self.file}: ProfilerStep#{number} has no kernels of its own; allowed: steps that end one after the "
                                  "other")
            trace.ends.append(last)


def collectives_of(traces: Iterable[Trace]) -> list[dict[str, Any]]:
    """Means per rank and step: calls and time of each collective, longest first."""
    found: dict[Collective, dict[Any, float]] = defaultdict(lambda: defaultdict(float))  # time by call
    whole = 0
    for trace in traces:
        whole += len(trace.steps)
        for work in trace.works:
            if work.collective:
                found[work.collective][work.call or id(work)] += (work.end - work.begin) / 1e3
    rows = [{"collective": event.name, "ranks": event.ranks, "bytes": event.bytes, "calls": len(ms) / whole, "ms": sum(ms.values()) / whole,
             "sent_bytes": len(ms) / whole * event.sent_bytes} for event, ms in found.items()]
    return sorted(rows, key=lambda row: -row["ms"])


def records_of(traces: list[Trace], simulated: Simulation) -> list[dict[str, Any]]:
    """The run line and the training record of traces of one step per rank, with the simulated step as its prediction."""
    steps = [number for number, _ in traces[0].steps]
    for trace in traces[1:]:
        if [number for number, _ in trace.steps] != steps:
            raise ReportError(f"{trace.file}: has other steps than {traces[0].file}; allowed: profiles of the same steps")
    for trace in traces:
        if trace.world_size not in (0, simulated.ranks):
            raise ReportError(f"{trace.file}: was recorded on {trace.world_size} ranks, and the simulated step has {simulated.ranks}; "
                              "allowed: the same layout")
    times = [max(end - begin for begin, end in (trace.window(n) for trace in traces)) / 1e3 for n in range(len(steps))]
    timed = times.index(statistics.median_low(times))
    parts = _mean_parts(traces, timed, simulated)
    name = "pytorch-" + hashlib.sha256(repr([(trace.ends, trace.file) for trace in traces]).encode()).hexdigest()[:12]
    tokens = int(simulated.global_batch * simulated.model.numbers["sequence"])
    basis_of_mfu = simulated.mfu * simulated.step_ms
    collectives = collectives_of(traces)
    gpus, where = [trace.gpu for trace in traces], f"{traces[0].file}: gives no valid record"
    run = line_of("run", where, run=name, program="torch.profiler", command=["reports.kineto", *(Path(trace.file).name for trace in traces)],
                  started=min(trace.started for trace in traces), libraries=traces[0].libraries, ranks=simulated.ranks, transport="nccl",
                  machine={"fingerprint": hashlib.sha256(repr(gpus).encode()).hexdigest()[:8], "gpus": gpus}, rank_kind="processes",
                  notes=[note for trace in traces for note in trace.notes])
    steps_run = [{"step": number + 1, "loss": None, "norm": None, "rate": 0.0, "skipped": False, "ms": ms, "tokens_per_s": 1e3 * tokens / ms,
                  "mfu": basis_of_mfu / ms} for number, ms in zip(steps, times)]
    training = line_of(
        "training", where, run=name, program="torch.profiler", layout={"text": simulated.layout.text, "numbers": simulated.layout.numbers},
        model={"name": simulated.model.name, "parameters": simulated.model.parameters,
               "numbers": {**simulated.model.numbers, "length": simulated.model.numbers["sequence"]}},
        schedule=simulated.schedule, dtype=_dtype(simulated), ranks=simulated.ranks, data="PyTorch's profile", tokens_per_step=tokens,
        flop_convention=simulated.flop_convention, peak_flops=1e12 * simulated.ranks * simulated.model_tflops_per_gpu / simulated.mfu,
        steps=steps_run, timed_step=steps[timed] + 1, parts_ms=parts, predicted=_predicted(simulated, parts),
        profile={"ranks": len(traces), "steps": len(steps), "collectives": collectives,
                 "sent_bytes": sum(row["sent_bytes"] for row in collectives), "predicted_sent_bytes": sum(simulated.sent_bytes.values())})
    return [run, training]


def _mean_parts(traces: list[Trace], index: int, simulated: Simulation) -> dict[str, float]:
    """The simulation's parts in its order, then what it does not have; each the mean of the ranks, in milliseconds."""
    each = [trace.parts_us(index) for trace in traces]
    names = dict.fromkeys([*simulated.parts_ms, "around", *(name for parts in each for name in parts)])
    return {name: sum(event.get(name, 0.0) for event in each) / len(each) / 1e3 for name in names}


def _predicted(simulated: Simulation, measured: dict[str, float]) -> dict[str, Any]:
    predicted = {name: simulated.parts_ms.get(name, 0.0) for name in measured}
    widest = max(measured, key=lambda name: abs(measured[name] - predicted[name]))
    more = measured[widest] - predicted[widest]
    step_ms = sum(measured.values())
    return {"machine": simulated.machine, "kernels": 0, "measured_kernels": 0, "step_ms": simulated.step_ms, "parts_ms": predicted,
            "measured_step_ms": step_ms, "measured_parts_ms": measured, "error": simulated.step_ms / step_ms - 1,
            "gap": f"{widest}, {abs(more):.2f} ms {'longer' if more > 0 else 'shorter'} than predicted"}


def _dtype(simulated: Simulation) -> str:
    match = re.search(r"(?:^|,)dtype=(\w+)", simulated.layout.text)
    return match[1] if match else "bf16"


def simulation_in(file: str) -> Simulation:
    found = load([file]).simulations
    if len(found) != 1:
        raise ReportError(f"{file}: has {len(found)} simulations; allowed: one, from simulate --json with the profile's model and layout")
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m reports.kineto", description="Converts traces of PyTorch's profiler to records, and compares them with "
                                     "a simulated step (docs/traces.md).")
    parser.add_argument("traces", nargs="+", metavar="TRACES", help="JSON that torch.profiler wrote, one file per rank (.json, .json.gz)")
    parser.add_argument("--beside", required=True, metavar="SIMULATED", help="records of simulate --json: the same model, layout and batch")
    parser.add_argument("-o", "--output", required=True, metavar="MEASURED", help="file for the records (.jsonl)")
    options = parser.parse_args()
    try:
        simulated = simulation_in(options.beside)
        traces = [Reader(file, simulated.layout.numbers.get("tp", 1)).read() for file in options.traces]
        records = records_of(traces, simulated)
        Path(options.output).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    except (ReportError, OSError) as error:
        print(f"reports.kineto: {error}", file=sys.stderr)
        return 2
    for note in records[0]["notes"]:
        print(f"reports.kineto: note: {note}", file=sys.stderr)
    predicted = records[1]["predicted"]
    print(f"{options.output}: a step of {predicted['measured_step_ms']:.3f} ms, simulated {predicted['step_ms']:.3f} ms "
          f"({100 * predicted['error']:+.1f} %); the largest gap: {predicted['gap']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
