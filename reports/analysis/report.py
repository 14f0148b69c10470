"""Converts Records to all results of a report, each subject separately."""
from dataclasses import dataclass, field, replace
from typing import Optional

from reports.analysis.caveats import findings_of
from reports.analysis.findings import Finding, main_findings
from reports.analysis.gate.results import analyse_gates, GateResult
from reports.analysis.results import Analysis, analyse
from reports.analysis.roofline.findings import RooflineResult, analyse_kernels
from reports.analysis.steps.layouts import analyse_layouts, analyse_studies, LayoutResult, StudyResult
from reports.analysis.steps.overlap import OverlapResult, analyse_overlap
from reports.analysis.steps.schedules import WorkloadResult, analyse_schedules
from reports.analysis.training.data_parallel import analyse_buckets, analyse_sharding, BucketsResult, ShardingResult
from reports.analysis.training.layers import (
    analyse_context, analyse_experts, analyse_layers, ContextResult, ExpertsResult, LayersResult)
from reports.analysis.training.runs import analyse_scaling, analyse_training, ScalingResult, TrainingResult
from reports.claims.data import load_claims, load_suite
from reports.claims.verdict import line_of, settle, Settled
from reports.records import Records


@dataclass(frozen=True)
class Report:
    records: Records
    collectives: Optional[Analysis]  # None where there are no rows
    kernels: tuple[RooflineResult, ...]  # empty where there are neither kernels nor ceilings
    # Empty where no record was made by a command of the claims' suite; such records are in no other part of the report.
    claims: tuple[Settled, ...] = field(default=(), kw_only=True)
    claims_records: Optional[Records] = field(default=None, kw_only=True)
    schedules: tuple[WorkloadResult, ...] = ()
    overlaps: tuple[OverlapResult, ...] = ()
    simulations: tuple[LayoutResult, ...] = ()
    trainings: tuple[TrainingResult, ...] = ()
    scalings: tuple[ScalingResult, ...] = ()
    shardings: tuple[ShardingResult, ...] = ()
    layers: tuple[LayersResult, ...] = ()
    contexts: tuple[ContextResult, ...] = field(default=(), kw_only=True)
    buckets: tuple[BucketsResult, ...] = ()
    gates: tuple[GateResult, ...] = ()
    studies: tuple[StudyResult, ...] = ()
    experts: tuple[ExpertsResult, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        collectives = main_findings(self.collectives.results) if self.collectives else []
        others = [*self.kernels, *self.schedules, *self.overlaps, *self.simulations, *self.studies, *self.trainings,
                  *self.scalings, *self.shardings, *self.layers, *self.contexts, *self.experts, *self.buckets, *self.gates]
        return collectives + findings_of(others)


def report_of(records: Records) -> Report:
    commands = load_suite()
    evidence = records.of_runs(lambda run: line_of(run, commands) is not None)
    others = records.of_runs(lambda run: line_of(run, commands) is None)
    return replace(_subjects_of(others), claims=tuple(settle(load_claims(), evidence, commands)), claims_records=evidence)


def _subjects_of(records: Records) -> Report:
    collectives = analyse(records.of_collectives()) if records.rows else None
    return Report(records, collectives, analyse_kernels(records.of_kernels()),
                  analyse_schedules(records.of_schedules()), analyse_overlap(records.of_schedules()),
                  analyse_layouts(records.of_simulations()), analyse_training(records.of_training()),
                  analyse_scaling(records.of_scaling()), analyse_sharding(records.of_sharding()),
                  analyse_layers(records.of_layers()), analyse_buckets(records.of_buckets()),
                  analyse_gates(records.of_gate()), analyse_studies(records.of_studies()),
                  contexts=analyse_context(records.of_context()), experts=analyse_experts(records.of_experts()))
