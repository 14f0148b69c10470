// The catalogue of pipeline schedules: the source of each, the shapes that it accepts, and its cost in closed form.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// The cost of a schedule when messages take no time, in the unit of the given times.
struct ClosedForm {
  bool of_makespan = true;  // false: `cost` is the largest own span
  double cost = 0;
};

// Number of weight versions that a rank keeps while a step runs.
enum class Versions : std::uint8_t {
  one,              // 1: updates wait for all microbatches
  in_flight,        // PipeDream: one per microbatch in flight, min(m, p - rank)
  double_buffered,  // PipeDream-2BW: 2 on every rank
};

struct CatalogueEntry {
  std::string_view name;
  std::string_view title;
  std::string_view source;
  std::string_view bubble;     // closed form in words, with its assumptions; b is a full backward, i + w
  std::int32_t weight_copies;  // copies of the whole model, over all ranks
  Versions versions;
  bool takes_chunks;  // any number of stages per rank; false: the schedule fixes that number
  Schedule (*make)(const PipelineShape& shape);
  // Returns why the shape is refused, empty if it is accepted. Called by why_invalid() once every number is at least 1.
  std::string (*why_invalid)(const PipelineShape& shape);
  // Returns no value where the formula's assumptions do not hold.
  std::optional<ClosedForm> (*closed_form)(const PipelineShape& shape, const Times& times);
  bool takes_slices = false;  // accepts token slices (schedules/slices.h); false: microbatches are whole
  bool evicts = false;        // moves kept activations to other ranks
  // A search finds the schedule (zb_search) within this number of microbatches' activations for each rank of the pipe:
  // for equal times in make(), and for given ones by the search itself. 0: a rule makes it.
  std::int32_t searched_share = 0;
};

std::span<const CatalogueEntry> catalogue();

std::int32_t weight_versions(const CatalogueEntry& entry, const PipelineShape& shape, std::int32_t rank);

// Returns why the entry refuses a shape, with the nearest valid value: "microbatches is 4; allowed: at least 8". Empty:
// the shape is valid.
std::string why_invalid(const CatalogueEntry& entry, const PipelineShape& shape);

// Throws core::Error(usage) that lists all names if there is no such entry.
const CatalogueEntry& entry_named(std::string_view name);

// The schedule of that name. Throws core::Error(usage) if the name is unknown or the shape is refused (why_invalid()).
Schedule make_schedule(std::string_view name, const PipelineShape& shape);

// The closed form of schedules that have none.
std::optional<ClosedForm> none_known(const PipelineShape& shape, const Times& times);

}  // namespace lockstep::schedules
