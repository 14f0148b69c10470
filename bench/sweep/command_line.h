// Flags of a program: declared by name, kept as text, refused in one line. CLI11 stays in the source.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/sweep/flag_values.h"

namespace lockstep::sweep {

struct HelpRequested {
  std::string text;
};

// The last value given wins, as with getopt.
class CommandLine {
 public:
  explicit CommandLine(const std::string& purpose);
  ~CommandLine();

  // `default_text`: for the help; empty: none.
  void add(const std::string& names, const std::string& default_text, const std::string& meaning, const char* group);
  void add_switch(const std::string& name, bool& value, const std::string& meaning, const char* group);

  // Throws a usage Error where there is a word that was not declared.
  std::optional<HelpRequested> parse(int argc, const char* const* argv);

  // Nothing where the flag was not given.
  std::optional<FlagValue> value(const std::string& names) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A flag that takes a value, as an entry of a table. `read` puts the value into a Target, or throws where it is
// refused.
template <typename Target>
struct FlagOf {
  const char* names;
  const char* default_text;
  const char* meaning;
  void (*read)(Target&, const FlagValue&);
};

template <typename Table>
void declare_all(CommandLine& line, const Table& table, const char* group) {
  for (const auto& flag : table) line.add(flag.names, flag.default_text, flag.meaning, group);
}

template <typename Table, typename Target>
void read_all(const CommandLine& line, const Table& table, Target& target) {
  for (const auto& flag : table) {
    if (const auto value = line.value(flag.names)) flag.read(target, *value);
  }
}

}  // namespace lockstep::sweep
