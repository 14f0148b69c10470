// The frame of each program: its command line, its output to text and files, its exit status.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/transports/paced_link.h"
#include "core/error.h"
#include "core/options.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::program {

// Flags of a program: declared by name, kept as text, read and refused as all options are. CLI11 is included by the
// source only.
using FlagValue = core::OptionText;
using core::file_name;
using core::integer;
using core::integer_list;
using core::text_list;

// Thrown if --help, --version or --describe is given: not a failure, but nothing else is to be done. exit_status_of()
// prints the text.
struct TextRequested {
  std::string text;
};
struct HelpRequested : TextRequested {};

// "all_reduce_perf (Lockstep) 0.1.0", the git revision, and the build, a line each.
std::string version_text(const std::string& program);

// The last value given wins, as with getopt. Every command line has --help, --version, and --describe: JSON of the
// program's flags, from which man pages and shell completion are made (cmake/manuals.py).
class CommandLine {
 public:
  // `purpose`: begins with "PROGRAM: " or does not.
  explicit CommandLine(const std::string& purpose);
  ~CommandLine();

  // `default_text`: shown by the help; empty: none.
  void add(const std::string& names, const std::string& default_text, const std::string& meaning, const char* group);
  void add_switch(const std::string& name, bool& value, const std::string& meaning, const char* group);
  // A first word that selects another command line of the program ("plan" of `simulate plan`); for help and --describe.
  void add_command(const std::string& name, const std::string& meaning);

  // Throws a usage Error if a word was not declared, and HelpRequested or TextRequested.
  void parse(int argc, const char* const* argv);

  // Returns nothing if the flag was not given.
  std::optional<FlagValue> value(const std::string& names) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a name has a match of this extended regular expression (POSIX). Throws a usage Error that begins with the
// expression if it is none. (<regex> takes longer to compile than a whole program of ours.)
std::function<bool(const std::string& name)> name_filter(const std::string& expression);

// A flag that takes a value, as an entry of a table. `read` puts the value into a Target, or throws if it is refused.
template <typename Target>
struct FlagOf {
  const char* names;
  const char* default_text;
  const char* meaning;
  void (*read)(Target&, const FlagValue&);
};

// The flag of the record file, for a `Flags` with json_file (Invocation).
template <typename Flags>
constexpr FlagOf<Flags> json_flag() {
  return {"--json", "", "file for records (docs/record_format.md)",
          [](Flags& flags, const FlagValue& value) { flags.json_file = file_name(value); }};
}

template <typename Table>
void declare_all(CommandLine& line, const Table& table, const char* group) {
  for (const auto& flag : table) line.add(flag.names, flag.default_text, flag.meaning, group);
}

// Whatever refuses a value, the message begins with the flag's name.
template <typename Table, typename Target>
void read_all(const CommandLine& line, const Table& table, Target& target) {
  for (const auto& flag : table) {
    const auto value = line.value(flag.names);
    if (!value) continue;
    try {
      flag.read(target, *value);
    } catch (const core::Error& error) {
      throw value->refused(error);
    }
  }
}

// A program's output and exit status.

// How a program was called; base of its flags.
struct Invocation {
  std::string program;               // without its folder
  std::vector<std::string> command;  // as given, the program without its folder
  std::string json_file;             // for records; empty: none

  void set_command(int argc, const char* const* argv);
};

using Print = std::function<void(const std::string& text)>;
void to_stdout(const std::string& text);  // flushed at once

// Writes the file completely or not at all.
void write_file(const std::string& path, const std::string& text);
// Before long work: throws a usage Error if one of these files, of which some may be "", cannot be written. Creates no
// file.
void check_writable(const std::vector<std::string>& paths);

// Throws a usage Error if `path` is given and there are several rows (or "schedules", ...) to write to it.
void check_single(const char* flag, const std::string& path, std::size_t rows, const char* name);

// Throws a usage Error if mpirun has started this process and others, each of which would print and write what the
// others do: `why` is the reason why each process is a run of its own.
void refuse_peers(const std::string& why, const std::string& allowed);

// Returns the exit status of `run`, or the failure's after one line on stderr. Prints the help or another text if it
// was requested. Under mpirun, what all processes would print is printed once.
int exit_status_of(const std::string& program, const std::function<int()>& run);

// "63+-5" percent, without +- if it is exact, or "undecided".
std::string share_text(const core::Estimate& share);

// An emulated link in a run's record; without a part that has no limit.
core::LinkRecord link_record(const transports::LinkSpec& link);
// "links of 10 us and 2 GB/s are EMULATED in wall-clock time"
std::string emulated_text(const transports::LinkSpec& link);

}  // namespace lockstep::program
