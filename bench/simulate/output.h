// Tables and records of simulate.
#pragma once

#include <string>

#include "bench/simulate/program.h"
#include "core/record.h"
#include "simulator/predict/predict.h"

namespace lockstep::simulate {

// Predictions as records (docs/record_format.md).

core::RunRecord run_record(const program::Invocation& flags);
core::SimulationRecord simulation_record(const core::RunRecord& run, const workload::Model& model,
                                         const workload::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& made, double wall_s);

// The text that simulate prints. Everything is simulated, as the heading says.

// Bytes that a rank sends per step: messages between stages, and collectives by group.
std::vector<std::pair<std::string, double>> named_bytes(const schedules::SentBytes& sent);
// Bytes that leave a switch, by the name of each level except the last.
std::vector<std::pair<std::string, double>> named_levels(const std::vector<double>& of_levels,
                                                         const simulator::Machine& machine);

std::string heading_text(const workload::Model& model, const simulator::Machine& machine);
std::string columns_text();
std::string row_text(const workload::Layout& layout, const simulator::Prediction& made);
// Breakdown of the time and the memory of one layout.
std::string details_text(const workload::Layout& layout, const simulator::Machine& machine,
                         const simulator::Prediction& made, double wall_s);
std::string list_text();

}  // namespace lockstep::simulate
