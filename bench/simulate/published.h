// Rows that others measured and published, to stand beside simulated ones: never mixed with them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::simulate {

struct PublishedRow {
  std::string series;
  std::string model;   // as parse_model() takes it
  std::string layout;  // as parse_layout() takes it
  double tflops_a_gpu = 0;
};

struct PublishedTable {
  std::string name;
  std::string machine;
  std::string source;
  std::vector<PublishedRow> rows;
};

std::vector<std::string> published_names();
// Throws a usage Error that lists the names.
PublishedTable published_table(std::string_view name);

}  // namespace lockstep::simulate
