"""Records of training steps that a few lines of Python play: lists of actions, times, and the resulting timelines."""
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional

from reports.tests.world import World, stats_of

Action = tuple[str, int, int]  # op, stage, microbatch


def gpipe(ranks: int, microbatches: int) -> list[list[Action]]:
    return [[("F", r, m) for m in range(microbatches)] + [("B", r, m) for m in range(microbatches)]
            for r in range(ranks)]


def one_f_one_b(ranks: int, microbatches: int) -> list[list[Action]]:
    lists = []
    for r in range(ranks):
        warmup = min(ranks - 1 - r, microbatches)
        one: list[Action] = [("F", r, m) for m in range(warmup)]
        for m in range(microbatches - warmup):
            one += [("F", r, warmup + m), ("B", r, m)]
        lists.append(one + [("B", r, m) for m in range(microbatches - warmup, microbatches)])
    return lists


def zb_h1(ranks: int, microbatches: int) -> list[list[Action]]:
    """1F1B with each B split; the W of rank r come r microbatches later, as far as memory allows."""
    lists = []
    for r, rank in enumerate(one_f_one_b(ranks, microbatches)):
        split: list[Action] = []
        waiting: list[Action] = []
        for op, stage, m in rank:
            split.append(("I" if op == "B" else op, stage, m))
            if op == "B":
                waiting.append(("W", stage, m))
                if len(waiting) > r:
                    split.append(waiting.pop(0))
        lists.append(split + waiting)
    return lists


MAKERS = {"gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1}


@dataclass
class StepWorld:
    """Times are ms; a message occupies its sender's lane for `message`."""

    ranks: int = 4
    microbatches: int = 8
    forward: float = 10.0
    input_gradient: float = 10.0
    weight_gradient: float = 10.0
    message: float = 0.0
    basis: str = "simulated"
    slow: float = 1.0  # factor of every kernel's time over the stated one
    run_name: str = "steps-1"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        fields = {"program": "pipeline_perf", "command": ["pipeline_perf", "--mode", self.basis], "libraries": {},
                  "basis": self.basis, **self.run_fields}
        return World(ranks=self.ranks, run_name=self.run_name, run_fields=fields).run()

    def schedule(self, name: str, **fields: Any) -> dict[str, Any]:
        lists = MAKERS[name](self.ranks, self.microbatches)
        ranks = self._played(lists)
        compute = [[task for task in rank if task[0] == "compute"] for rank in ranks]
        makespan = max(task[6] for rank in compute for task in rank)
        own = [max(t[6] for t in rank) - min(t[5] for t in rank) for rank in compute]
        work = max(sum(t[6] - t[5] for t in rank) for rank in compute)
        memory = [self._held(rank) for rank in compute]
        record = {
            "record": "schedule", "run": self.run_name, "program": "pipeline_perf", "schedule": name,
            "source": f"the paper of {name}", "ranks": self.ranks, "microbatches": self.microbatches, "chunks": 1,
            "pipes": 1, "basis": self.basis,
            "times_ms": {"forward": self.forward, "input_gradient": self.input_gradient,
                         "weight_gradient": self.weight_gradient, "message": self.message},
            "memory_limit": None, "w_memory": 1, "bound_ms": None, "makespan_ms": makespan, "own_span_ms": max(own), "own_span_ms_of_rank": own,
            "work_ms": work,
            "bubbles": {"of_ideal": (makespan - work) / work, "of_makespan": (makespan - work) / makespan,
                        "of_own_span": (max(own) - work) / max(own), "own_of_ideal": (max(own) - work) / work},
            "peak_activations": {"until_w": [max(v for _, v in points) for points in memory],
                                 "until_b": [max(v for _, v in points) for points in memory]},
            "sends": [sum(t[0] == "send" for t in rank) for rank in ranks], "weight_versions": [1] * self.ranks,
            "hangs": {"blocking": "rank 0 at 0SEND_F1 to rank 1", "batched": None, "buffered_1": None},
            "ordering": {"pairs": 2 * (self.ranks - 1), "pairs_out_of_order": 0, "set_aside": 0},
            "closed_form_ms": None, "exposed_ms": [0.0] * self.ranks, "samples_ms": [makespan],
            "stats": stats_of([makespan]), "late_us": None if self.basis == "simulated" else 40.0, "simulated_ms": None,
            "timeline": {"unit": "ms", "ranks": ranks},
            "memory": {"unit": "microbatch activations", "of_rank": [{"activations": points} for points in memory]},
            "overlap": None,
        }
        record.update(fields)
        return record

    def sweep(self, names: Iterable[str] = tuple(MAKERS), **fields: Any) -> list[dict[str, Any]]:
        return [self.schedule(name, **fields) for name in names]

    def overlap(self, cap_mib: int, layers: int = 8, mib: int = 8, zero_stage: int = 0) -> dict[str, Any]:
        """Backward from the last layer to the first; a bucket is reduced when its last gradient is there."""
        link = self.run_fields.get("link") or {"latency_us": 0.0, "gbps": 10.0}
        backward = self.input_gradient + self.weight_gradient
        computing = layers * (self.forward + backward)
        tasks = [["compute", "F", 0, 0, i, i * self.forward, (i + 1) * self.forward] for i in range(layers)]
        free, waiting, alone, number = 0.0, 0, 0.0, 0
        for i in range(layers):
            start = layers * self.forward + i * backward
            tasks.append(["compute", "B", 0, 0, layers - 1 - i, start, start + backward])
            waiting += mib
            if waiting >= cap_mib or i == layers - 1:
                took = link["latency_us"] / 1e3 + waiting * 2 ** 20 / link["gbps"] / 1e6
                begin = max(free, start + backward)
                tasks.append(["reduce", "REDUCE_GRAD", 0, -1, number, begin, begin + took])
                free, alone, waiting, number = begin + took, alone + took, 0, number + 1
        step = max(computing, free)
        fields = {"layers": layers, "bytes_per_layer": mib << 20, "replicas": self.ranks, "bucket_cap_bytes": cap_mib << 20,
                "zero_stage": zero_stage, "prefetch": 1, "algorithm": "ring", "collectives": number,
                "compute_alone_ms": computing, "communication_alone_ms": alone,
                "efficiency": 1 - (step - computing) / alone}
        return self.schedule("1f1b", program="overlap_perf", schedule=f"buckets of {cap_mib} MiB", microbatches=1,
                             times_ms=None, makespan_ms=step, own_span_ms=step, work_ms=computing, overlap=fields,
                             memory=None, exposed_ms=[step - computing] * self.ranks,
                             timeline={"unit": "ms", "ranks": [tasks] * self.ranks})

    def _played(self, lists: list[list[Action]]) -> list[list[list[Any]]]:
        """Each action as early as its rank and what it needs allow."""
        length = {"F": self.forward, "I": self.input_gradient, "W": self.weight_gradient,
                  "B": self.input_gradient + self.weight_gradient}
        made: dict[tuple[str, int, int], float] = {}
        ranks: list[list[list[Any]]] = [[] for _ in lists]
        next_of, free = [0] * len(lists), [0.0] * len(lists)
        port = [0.0] * len(lists)
        while any(next_of[r] < len(tasks) for r, tasks in enumerate(lists)):
            for r, line in enumerate(lists):
                while next_of[r] < len(line):
                    op, stage, m = line[next_of[r]]
                    need = self._need(op, stage, m)
                    if need and need not in made:
                        break
                    start = max(free[r], made.get(need, 0.0) if need else 0.0)
                    free[r] = start + self.slow * length[op]
                    if need and self._peer(op) is not None:
                        ranks[r].append(["receive", "RECV_F" if op == "F" else "RECV_B", stage, m, -1,
                                         made[need] - self.message, made[need]])
                    ranks[r].append(["compute", op, stage, m, -1, start, free[r]])
                    self._send(ranks[r], port, r, op, stage, m, free[r], made)
                    next_of[r] += 1
        return ranks

    def _peer(self, op: str) -> Optional[int]:
        return {"F": -1, "B": 1, "I": 1}.get(op)

    def _need(self, op: str, stage: int, m: int) -> Optional[tuple[str, int, int]]:
        if op == "F" and stage > 0:
            return ("activations", stage - 1, m)
        if op in "BI" and stage < self.ranks - 1:
            return ("gradient", stage + 1, m)
        return None

    def _send(self, tasks: list, port: list[float], r: int, op: str, stage: int, m: int, ready: float,
              made: dict) -> None:
        last = {"F": self.ranks - 1, "B": 0, "I": 0}.get(op)
        if last is None or stage == last:
            return
        start = max(ready, port[r])
        port[r] = start + self.message
        tasks.append(["send", "SEND_F" if op == "F" else "SEND_B", stage, m, -1, start, port[r]])
        made["activations" if op == "F" else "gradient", stage, m] = port[r]

    @staticmethod
    def _held(rank: list[list[Any]]) -> list[list[float]]:
        """Activations from the start of F to the end of B or W."""
        changes = sorted([(t[5], 1, 1) for t in rank if t[1] == "F"] + [(t[6], 0, -1) for t in rank if t[1] in "BW"])
        held, points = 0, []
        for at, _, change in changes:
            held += change
            points.append([at, float(held)])
        return points


@dataclass
class LayoutWorld:
    """Simulated steps of one model on one machine."""

    run_name: str = "simulate-1"

    def run(self) -> dict[str, Any]:
        fields = {"program": "simulate", "command": ["simulate", "--model", "gpt3-175b"], "libraries": {},
                  "basis": "simulated"}
        return World(ranks=64, run_name=self.run_name, run_fields=fields).run()

    def simulation(self, dp: int, tp: int, pp: int, **fields: Any) -> dict[str, Any]:
        compute = {"forward": 1500.0, "backward": 3000.0, "recompute": 0.0, "optimizer": 40.0}
        exposed = {"exposed_tensor": 120.0 * tp, "exposed_pipeline": 20.0 * (pp - 1), "exposed_gather": 0.0,
                   "exposed_reduce": 60.0 * (dp - 1), "exposed_copy": 0.0}
        parts = {**compute, **exposed, "bubble": 400.0 * (pp - 1) / pp}
        step = sum(parts.values())
        memory = {"weights": 350e9 / (tp * pp), "gradients": 350e9 / (tp * pp), "optimizer": 2100e9 / (tp * pp * dp),
                  "activations": 10e9 * 8 / tp, "buffers": 2e9}
        total = sum(memory.values())
        record = {
            "record": "simulation", "run": self.run_name, "program": "simulate", "basis": "simulated",
            "model": {"name": "gpt3-175b", "parameters": 175 * 10 ** 9, "numbers": {"layers": 96, "hidden": 12288}},
            "layout": {"text": f"tp={tp},pp={pp},dp={dp}",
                       "numbers": {"tp": tp, "cp": 1, "ep": 1, "dp": dp, "pp": pp, "zero": 1, "microbatch": 1,
                                   "chunks": 1}},
            "schedule": "1f1b", "machine": "a100-80g", "ranks": dp * tp * pp, "global_batch": 512, "step_ms": step,
            "parts_ms": parts,
            "bubbles": {"of_ideal": 0.1, "of_makespan": parts["bubble"] / step, "of_own_span": 0.05,
                        "own_of_ideal": 0.05},
            "mfu": 3000.0 / step, "hfu": 3600.0 / step, "flop_convention": "6 N D plus attention",
            "model_tflops_per_gpu": 312 * 3000.0 / step, "hardware_tflops_per_gpu": 312 * 3600.0 / step,
            "tokens_per_s": 512 * 2048 / step * 1e3, "memory_bytes": {**memory, "total": total},
            "capacity_bytes": 80e9, "fits": total <= 80e9, "events": 10000, "wall_s": 0.01,
            "engine_s": 0.005, "sent_bytes": {"messages": 1e9}, "timeline": None,
            "memory": None,
        }
        record.update(fields)
        return record

    def study(self) -> list[dict[str, Any]]:
        """A map of two models and two links."""
        return [{"record": "study", "run": self.run_name, "program": "simulate", "basis": "simulated", "study": "map",
                 "setting": "64 devices", "series": way, "layout": "dp=64", "parts_ms": {"forward": 1.0},
                 "at": {"parameters": parameters, "gbps": gbps, "gpus": 64}, "values": {"step_ms": 1.0, "margin_percent": 7.0},
                 "fits": True, "best": True, "note": f"model-{parameters:g}: TP is 7 % slower", "source": ""}
                for parameters in (1e9, 1e10) for gbps, way in ((1.0, "PP+DP"), (25.0, "ZeRO-3"))]

    def sweep(self, ranks: int = 128) -> list[dict[str, Any]]:
        """All layouts of powers of two."""
        powers = [2 ** k for k in range(ranks.bit_length())]
        return [self.simulation(ranks // (tp * pp), tp, pp) for tp in powers[:4] for pp in powers if tp * pp <= ranks]
