// The pipeline schedules that we know: where each comes from, what it asks of its shape, and what it should cost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

// A formula for the cost of a schedule without time for messages, where the assumptions that make it exact hold.
struct ClosedForm {
  bool of_makespan = true;  // else of the largest own span
  double cost = 0;
};

// How many versions of the weights a rank keeps while a step runs.
enum class Versions : std::uint8_t {
  one,              // updates wait for all microbatches
  in_flight,        // PipeDream: one for each microbatch under way, min(m, p - rank)
  double_buffered,  // PipeDream-2BW: 2, whatever the rank
};

struct CatalogueEntry {
  std::string_view name;
  std::string_view title;
  std::string_view source;
  std::string_view bubble;     // the closed form in words, with its assumptions; b is a full backward, i + w
  std::int32_t weight_copies;  // of the model, over all ranks
  Versions versions;
  bool takes_chunks;  // any number of stages a rank; else it has its own
  Schedule (*make)(const PipelineShape& shape);
  // For a shape that has at least one of everything; see misfit_of().
  std::string (*misfit)(const PipelineShape& shape);
  // Nothing where its assumptions do not hold.
  std::optional<ClosedForm> (*closed_form)(const PipelineShape& shape, const Times& times);
  bool takes_slices = false;  // of tokens (schedules/slices.h); else microbatches are whole
  bool evicts = false;        // kept activations to other ranks
};

std::span<const CatalogueEntry> catalogue();

std::int32_t weight_versions(const CatalogueEntry& entry, const PipelineShape& shape, std::int32_t rank);

// Why a shape does not fit, with what would: "microbatches is 4; allowed: at least 8". Empty: it fits.
std::string misfit_of(const CatalogueEntry& entry, const PipelineShape& shape);

// Throws core::Error(usage): no such name, and which there are.
const CatalogueEntry& entry_named(std::string_view name);

// The schedule of that name. Throws core::Error(usage) if the shape does not fit, and says which would.
Schedule make_schedule(std::string_view name, const PipelineShape& shape);

}  // namespace lockstep::schedules
