// Which models and layouts are legal, and which of them the trainer trains: one table of rules, each with its text. A
// program evaluates it once for a layout; what depends on other options of a run (devices, checkpoints, replicas that
// step alone) is refused by trainer/train/train.h.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

// Returns why the trainer cannot train the model in this layout, with valid values; empty if it can. What it lacks
// comes first: what would make the layout valid is no remedy then. (why_invalid() of layout.h: for all that build a
// step.)
std::string why_not_trained(const Model& model, const Layout& layout);

// Returns why the trainer refuses a valid schedule of that name; empty if it does not. With one slice, or too few ranks
// to evict, it would be another schedule under that name.
std::string untrainable(const schedules::CatalogueEntry& entry, const schedules::Schedule& schedule);

// "tp is 5, and heads is 12; allowed: 1 2 3 4 6 12"; empty if the value divides the total.
std::string must_divide(const std::string& what, std::int64_t value, const std::string& of, std::int64_t total);

}  // namespace lockstep::workload
