// From flags to schedules: one case a row.
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
  std::string name;                             // of the schedule, or the file's last part
  schedules::Schedule schedule;                 // computations alone
  schedules::Schedule messages;                 // with messages: the file's own, if it has any
  schedules::PipelineShape shape;               // that was asked for; of a file: as it turned out
  const schedules::CatalogueEntry* entry = {};  // nothing for files and searches
  std::optional<std::string> source;
  std::optional<double> memory_limit = {};  // that it was searched for, in microbatches' activations
};

struct Cases {
  std::vector<Case> all;
  std::vector<std::string> left_out;  // what does not fit (--schedule all) or is not run (--csv), and why
};

// Makes and checks all schedules. Throws a usage Error for what does not exist, does not fit or is wrong.
Cases make_cases(const PipelineFlags& flags);

// What --list shows: a line a schedule, with its source.
std::string list_text();

}  // namespace lockstep::pipeline
