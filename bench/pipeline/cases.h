// The schedules that the flags ask for: one case per row of the table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/flags.h"
#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::pipeline {

struct Case {
  std::string name;                             // the schedule's name, or the file's name
  schedules::Schedule schedule;                 // computations only
  schedules::Schedule messages;                 // with messages: the file's own, if it has any
  schedules::PipelineShape shape;               // requested shape, or that of the file
  const schedules::CatalogueEntry* entry = {};  // null for files and searches
  std::optional<std::string> source;
  std::optional<double> memory_limit = {};  // limit of the search, in microbatches' activations
};

struct Cases {
  std::vector<Case> all;
  std::vector<std::string> left_out;  // invalid shapes (--schedule all) or actions that are not run (--csv), and why
};

// Makes and checks all schedules. Throws a usage Error for unknown names, invalid shapes and incorrect files.
Cases make_cases(const PipelineFlags& flags);

// The text of --list: one line per schedule, with its source.
std::string list_text();

}  // namespace lockstep::pipeline
