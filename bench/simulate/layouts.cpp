#include "bench/simulate/layouts.h"

#include "core/error.h"

namespace lockstep::simulate {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Texts with one more field, once for each of its values; the field's own value in the base gives way.
std::string with_field(const std::string& text, const std::string& name, const std::string& value) {
  std::string kept;
  for (const std::string& part : split(text, ',')) {
    if (part.empty() || part.starts_with(name + "=")) continue;
    kept += part + ",";
  }
  return kept + name + "=" + value;
}

}  // namespace

std::vector<workload::Layout> swept_layouts(const std::string& base, const std::vector<std::string>& sweep) {
  std::vector<std::string> texts{base};
  for (const std::string& part : sweep) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      throw core::usage_error("--sweep " + part + ": no field with values; allowed: such as tp=2:4:8");
    }
    const std::string name = part.substr(0, equals);
    std::vector<std::string> more;
    for (const std::string& text : texts) {
      for (const std::string& value : split(part.substr(equals + 1), ':'))
        more.push_back(with_field(text, name, value));
    }
    texts = std::move(more);
  }
  std::vector<workload::Layout> layouts;
  for (const std::string& text : texts) layouts.push_back(workload::parse_layout(text));
  return layouts;
}

}  // namespace lockstep::simulate
