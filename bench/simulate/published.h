// Published measurements of others, shown beside simulated rows and never mixed with them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::simulate {

struct PublishedRow {
  std::string series;
  std::string model;   // argument of parse_model()
  std::string layout;  // argument of parse_layout()
  double tflops_a_gpu = 0;
};

struct PublishedTable {
  std::string name;
  std::string machine;
  std::string source;
  std::vector<PublishedRow> rows;
};

std::vector<std::string> published_names();
// Throws a usage Error that lists the names if `name` is unknown.
PublishedTable published_table(std::string_view name);

}  // namespace lockstep::simulate
