// Fields of a JSON object, each read once by its name; what is missing, of the wrong kind, out of range or not known is
// refused in one line that names the file and the field. Included by sources only.
#pragma once

#include <cstdint>
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
  double number(const char* name, double min, double max);  // both ends are allowed
  double positive(const char* name);
  std::int64_t integer(const char* name, std::int64_t min);
  bool yes_or_no(const char* name);
  std::vector<std::string> texts(const char* name);
  std::vector<std::pair<double, double>> pairs(const char* name);
  JsonFields object(const char* name);
  std::vector<JsonFields> objects(const char* name);
  // Refuses fields that nobody has read.
  void done() const;
  [[noreturn]] void refuse(const std::string& field, const std::string& what, const std::string& allowed) const;

 private:
  struct Node;
  explicit JsonFields(std::unique_ptr<Node> node);
  std::unique_ptr<Node> node_;
};

}  // namespace lockstep::simulator
