#include "simulator/machine/json_fields.h"

#include <limits>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/record_json.h"

namespace lockstep::simulator {
namespace {

using nlohmann::json;

std::string text_of(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

struct JsonFields::Node {
  Node(json of, std::string file, std::string before)
      : value(std::move(of)), where(std::move(file)), path(std::move(before)) {}

  json value;
  std::string where;  // "a100.json"
  std::string path;   // "levels[0]."
  std::set<std::string> read;

  const json& field(const char* name) {
    read.insert(name);
    if (!value.contains(name)) throw core::usage_error(where + ": " + path + name + " is missing");
    return value.at(name);
  }
  std::unique_ptr<Node> child(const json& of, const std::string& name) const {
    if (!of.is_object()) throw core::usage_error(where + ": " + path + name + ": not an object; allowed: {...}");
    return std::make_unique<Node>(of, where, path + name + ".");
  }
};

JsonFields::JsonFields(std::unique_ptr<Node> node) : node_(std::move(node)) {}
JsonFields::~JsonFields() = default;
JsonFields::JsonFields(JsonFields&&) noexcept = default;

JsonFields JsonFields::of_text(std::string_view text, const std::string& where) {
  json value = core::parse_json(text, where);
  if (!value.is_object()) throw core::usage_error(where + ": not a JSON object; allowed: {...}");
  return JsonFields(std::make_unique<Node>(std::move(value), where, ""));
}

void JsonFields::refuse(const std::string& field, const std::string& what, const std::string& allowed) const {
  throw core::usage_error(node_->where + ": " + node_->path + field + ": " + what + "; allowed: " + allowed);
}

bool JsonFields::has(const char* name) const {
  return node_->value.contains(name);
}

std::string JsonFields::text(const char* name) {
  const json& field = node_->field(name);
  if (!field.is_string() || field.get<std::string>().empty()) refuse(name, field.dump(), "a text that is not empty");
  return field.get<std::string>();
}

double JsonFields::number(const char* name, double min, double max) {
  const json& field = node_->field(name);
  const std::string allowed = max == std::numeric_limits<double>::infinity()
                                  ? "numbers from " + text_of(min) + " up"
                                  : "numbers from " + text_of(min) + " to " + text_of(max);
  if (!field.is_number()) refuse(name, field.dump() + " is not a number", allowed);
  const auto value = field.get<double>();
  if (value < min || value > max) refuse(name, field.dump(), allowed);
  return value;
}

double JsonFields::positive(const char* name) {
  const double value = number(name, 0, std::numeric_limits<double>::infinity());
  if (value == 0) refuse(name, "0", "numbers above 0");
  return value;
}

std::int64_t JsonFields::integer(const char* name, std::int64_t min, std::int64_t max) {
  const json& field = node_->field(name);
  const auto value = core::integer_in(field, min, max);
  if (!value) refuse(name, field.dump(), "whole numbers from " + std::to_string(min) + " to " + std::to_string(max));
  return *value;
}

std::int32_t JsonFields::int32(const char* name, std::int32_t min) {
  return static_cast<std::int32_t>(integer(name, min, std::numeric_limits<std::int32_t>::max()));
}

bool JsonFields::yes_or_no(const char* name) {
  const json& field = node_->field(name);
  if (!field.is_boolean()) refuse(name, field.dump(), "true false");
  return field.get<bool>();
}

std::vector<std::string> JsonFields::texts(const char* name) {
  const json& field = node_->field(name);
  std::vector<std::string> found;
  if (!field.is_array()) refuse(name, field.dump(), "a list of texts");
  for (const json& entry : field) {
    if (!entry.is_string()) refuse(name, entry.dump(), "a list of texts");
    found.push_back(entry.get<std::string>());
  }
  return found;
}

std::vector<std::pair<double, double>> JsonFields::pairs(const char* name) {
  const json& field = node_->field(name);
  const char* allowed = "a list of pairs of numbers, [[1e9, 0.5], ...]";
  std::vector<std::pair<double, double>> found;
  if (!field.is_array()) refuse(name, field.dump(), allowed);
  for (const json& entry : field) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number() || !entry[1].is_number()) {
      refuse(name, entry.dump(), allowed);
    }
    found.emplace_back(entry[0].get<double>(), entry[1].get<double>());
  }
  return found;
}

JsonFields JsonFields::object(const char* name) {
  return JsonFields(node_->child(node_->field(name), name));
}

std::vector<JsonFields> JsonFields::objects(const char* name) {
  const json& field = node_->field(name);
  std::vector<JsonFields> found;
  if (!field.is_array()) refuse(name, field.dump(), "a list of objects");
  for (const json& entry : field) {
    found.push_back(JsonFields(node_->child(entry, std::string(name) + "[" + std::to_string(found.size()) + "]")));
  }
  return found;
}

void JsonFields::done() const {
  std::string known;
  for (const std::string& name : node_->read) known += (known.empty() ? "" : " ") + name;
  for (const auto& [name, value] : node_->value.items()) {
    if (node_->read.count(name) == 0) refuse(name, "no such field", known);
  }
}

}  // namespace lockstep::simulator
