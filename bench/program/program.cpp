#include "bench/program/program.h"

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>

#include "bench/program/command_line.h"
#include "core/error.h"
#include "core/output_file.h"

namespace lockstep::program {
namespace {

// A line of a message, which may quote anything from a file or a flag: control characters are shown by their numbers
// (\x1b), and of a long line the middle is left out, as what is allowed stands at its end.
std::string printable(const std::string& line) {
  constexpr std::size_t kBegin = 1000;
  constexpr std::size_t kEnd = 1000;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (const char c : line) {
    const auto code = static_cast<unsigned char>(c);
    if (std::iscntrl(code) == 0) {
      shown += c;
    } else {
      shown.append("\\x").append(1, kDigits[code >> 4U]).append(1, kDigits[code & 15U]);
    }
  }
  if (shown.size() <= kBegin + kEnd) return shown;
  const std::string left_out = " ... (" + std::to_string(shown.size() - kBegin - kEnd) + " bytes) ... ";
  return shown.substr(0, kBegin) + left_out + shown.substr(shown.size() - kEnd);
}

int report(const std::string& program, const char* what, int status) {
  std::fflush(stdout);
  std::istringstream lines(program + ": " + what);
  for (std::string line; std::getline(lines, line);) std::fprintf(stderr, "%s\n", printable(line).c_str());
  return status;
}

int run_or_print(const std::function<int()>& run) {
  try {
    return run();
  } catch (const TextRequested& requested) {
    to_stdout(requested.text);
    return 0;
  }
}

}  // namespace

void Invocation::set_command(int argc, const char* const* argv) {
  program = std::filesystem::path(argv[0]).filename().string();
  command.assign(argv, argv + argc);
  command.front() = program;
}

void to_stdout(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  throw core::Error(core::Failure::internal, "cannot write standard output: " + core::system_reason(errno));
}

void write_file(const std::string& path, const std::string& text) {
  core::AtomicFile file(path);
  file.write(text);
  file.commit();
}

void check_single(const char* flag, const std::string& path, std::size_t rows, const char* name) {
  if (path.empty() || rows == 1) return;
  throw core::usage_error(std::string(flag) + " " + path + ": there are " + std::to_string(rows) + " " + name +
                          "; allowed: one");
}

int exit_status_of(const std::string& program, const std::function<int()>& run) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails with a reason instead of ending the program
  try {
    return run_or_print(run);
  } catch (const core::Error& error) {
    return report(program, error.what(), error.exit_status());
  } catch (const std::exception& error) {
    return report(program, error.what(), static_cast<int>(core::Failure::internal));
  }
}

core::LinkRecord link_record(const transports::LinkSpec& link) {
  return {link.latency_us, link.gbps > 0 ? std::optional(link.gbps) : std::nullopt};
}

}  // namespace lockstep::program
