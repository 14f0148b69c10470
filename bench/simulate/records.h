// Predictions as records (docs/record_format.md).
#pragma once

#include "bench/simulate/flags.h"
#include "core/record.h"
#include "simulator/predict/predict.h"

namespace lockstep::simulate {

core::RunRecord run_record(const program::Invocation& flags);
core::SimulationRecord simulation_record(const core::RunRecord& run, const workload::Model& model,
                                         const workload::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& made, double wall_s);

}  // namespace lockstep::simulate
