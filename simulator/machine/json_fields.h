// Reads the fields of a JSON object by name. A missing, mistyped, out-of-range or unknown field throws a one-line usage
// Error with the file and the field.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::simulator {

class JsonFields {
 public:
  // The outermost object of a text.
  static JsonFields of_text(std::string_view json, const std::string& where);
  ~JsonFields();
  JsonFields(JsonFields&&) noexcept;
  JsonFields& operator=(JsonFields&&) = delete;
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  bool has(const char* name) const;
  std::string text(const char* name);
  double number(const char* name, double min, double max);  // in [min, max]
  double positive(const char* name);
  std::int64_t integer(const char* name, std::int64_t min, std::int64_t max = std::numeric_limits<std::int64_t>::max());
  std::int32_t int32(const char* name, std::int32_t min);
  bool yes_or_no(const char* name);
  std::vector<std::string> texts(const char* name);
  std::vector<std::pair<double, double>> pairs(const char* name);
  JsonFields object(const char* name);
  std::vector<JsonFields> objects(const char* name);
  // Throws if the object has fields that were not read.
  void done() const;
  [[noreturn]] void refuse(const std::string& field, const std::string& what, const std::string& allowed) const;

 private:
  struct Node;
  explicit JsonFields(std::unique_ptr<Node> node);
  std::unique_ptr<Node> node_;
};

}  // namespace lockstep::simulator
