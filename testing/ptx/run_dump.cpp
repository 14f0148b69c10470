// ptx_check dump: the launches of cases, written as files.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "core/error.h"
#include "testing/ptx/commands.h"
#include "testing/ptx/launch_record.h"

namespace lockstep::ptx {
namespace {

namespace fs = std::filesystem;

// Hands on all calls, and writes each launch that runs alone.
class Dumper final : public cuda_stand_in::Executor {
 public:
  Dumper(Library& library, const Options& options, std::string folder)
      : library_(library), interpreter_(library, options), folder_(std::move(folder)) {}

  void set_case(const std::string& name) { case_ = name; }
  int written() const { return written_; }

  std::optional<cuda_stand_in::KernelFacts> facts_of(const std::string& kernel) override {
    return interpreter_.facts_of(kernel);
  }
  void begin(const cuda_stand_in::Launch& launch) override {
    if (running_++ == 0) {
      open_ = record_of(launch);
    } else {
      open_.reset();  // its memory may change meanwhile
    }
    interpreter_.begin(launch);
  }
  std::vector<std::uint64_t> run() override {
    std::vector<std::uint64_t> ended = interpreter_.run();
    running_ -= static_cast<int>(ended.size());
    if (!ended.empty() && open_) finish();
    return ended;
  }
  void on_allocated(std::uintptr_t begin, std::size_t size_bytes) override {
    interpreter_.on_allocated(begin, size_bytes);
  }
  void on_freed(std::uintptr_t begin, std::size_t size_bytes) override { interpreter_.on_freed(begin, size_bytes); }
  void on_written(std::uintptr_t begin, std::size_t size_bytes) override { interpreter_.on_written(begin, size_bytes); }

 private:
  // A part of an allocation, from its first to its last byte that was written.
  struct Part {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  struct Open {
    LaunchRecord record;
    std::vector<Part> parts;  // where the record's buffers are
  };

  Open record_of(const cuda_stand_in::Launch& launch);
  void add_pointer(Open& open, std::size_t at, std::uintptr_t address);
  void finish();

  Library& library_;
  Interpreter interpreter_;
  std::string folder_;
  std::string case_;
  std::optional<Open> open_;
  int running_ = 0;
  int written_ = 0;
};

std::vector<std::byte> bytes_at(std::uintptr_t begin, std::uintptr_t end) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of the device are those of this process
  const auto* const first = reinterpret_cast<const std::byte*>(begin);
  return {first, first + (end - begin)};
}

// The ranges of an allocation's bytes that have been written.
std::vector<std::pair<std::size_t, std::size_t>> written_ranges(const Allocation& memory) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::size_t i = 0; i < memory.size_bytes; ++i) {
    if (!memory.shadow.is_initialized(i, 1)) continue;
    if (ranges.empty() || ranges.back().second != i) ranges.emplace_back(i, i);
    ++ranges.back().second;
  }
  return ranges;
}

void Dumper::add_pointer(Open& open, std::size_t at, std::uintptr_t address) {
  Allocation* const memory = interpreter_.memory().find(address, 1);
  if (memory == nullptr) return;
  const auto base = reinterpret_cast<std::uintptr_t>(memory->begin);
  auto& buffers = open.record.buffers;
  std::size_t which = 0;
  while (which < open.parts.size() && (address < open.parts[which].begin || address >= open.parts[which].end)) ++which;
  if (which == open.parts.size()) {
    // All of the allocation: what the kernel will write is not known yet.
    open.parts.push_back({base, base + memory->size_bytes});
    buffers.push_back({.name = fmt::format("b{}", which),
                       .before = bytes_at(base, base + memory->size_bytes),
                       .initialized = written_ranges(*memory)});
  }
  open.record.pointers.push_back({at, buffers[which].name, address - open.parts[which].begin});
}

Dumper::Open Dumper::record_of(const cuda_stand_in::Launch& launch) {
  Open open{.record = {.launch = launch, .places = interpreter_.facts_of(launch.kernel)->parameters}, .parts = {}};
  open.record.launch.kernel = library_.entry(launch.kernel)->name;
  open.record.work.kernel = short_name_of(launch.kernel);
  open.record.work.shape = case_;
  auto& bytes = open.record.launch.parameters;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes.size(); at += sizeof(std::uintptr_t)) {
    std::uintptr_t address = 0;
    std::memcpy(&address, &bytes[at], sizeof address);
    const std::size_t before = open.record.pointers.size();
    add_pointer(open, at, address);
    if (open.record.pointers.size() > before) std::memset(&bytes[at], 0, sizeof address);
  }
  return open;
}

// Cuts a buffer to what was written before or after, at a multiple of kBufferAlignment.
void cut(LaunchBuffer& buffer, std::size_t end_written, std::vector<LaunchPointer>& pointers) {
  std::size_t begin = buffer.initialized.empty() ? 0 : buffer.initialized.front().first;
  std::size_t end = std::max(end_written, buffer.initialized.empty() ? 0 : buffer.initialized.back().second);
  for (const LaunchPointer& pointer : pointers) {
    if (pointer.buffer != buffer.name) continue;
    begin = std::min(begin, pointer.offset);
    end = std::max(end, pointer.offset + 1);
  }
  begin = begin / kBufferAlignment * kBufferAlignment;
  for (LaunchPointer& pointer : pointers) {
    if (pointer.buffer == buffer.name) pointer.offset -= begin;
  }
  for (auto& [from, to] : buffer.initialized) {
    from -= begin;
    to -= begin;
  }
  for (auto* bytes : {&buffer.before, &buffer.after}) {
    bytes->resize(end);
    bytes->erase(bytes->begin(), bytes->begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

void Dumper::finish() {
  LaunchRecord& record = open_->record;
  for (std::size_t i = 0; i < record.buffers.size(); ++i) {
    const Part& part = open_->parts[i];
    record.buffers[i].after = bytes_at(part.begin, part.end);
    const Allocation* const memory = interpreter_.memory().find(part.begin, 1);
    const auto ranges = memory == nullptr ? decltype(written_ranges(*memory)){} : written_ranges(*memory);
    cut(record.buffers[i], ranges.empty() ? 0 : ranges.back().second, record.pointers);
  }
  const std::string file = library_.path_of(name_without_hashes(record.launch.kernel));
  fs::copy_file(file, fs::path(folder_) / fs::path(file).filename(), fs::copy_options::skip_existing);
  std::string name = case_;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ',' || c == ' '; }, '.');
  write_record(folder_, fmt::format("{}.{}", name, ++written_), record);
  open_.reset();
}

}  // namespace

int run_dump(Library& library, const Settings& settings) {
  if (settings.out.empty())
    throw core::usage_error("dump: no folder for its files; allowed: ptx_check dump FOLDER OUT");
  fs::create_directories(settings.out);
  Dumper dumper(library, {.seed = settings.seed}, settings.out);
  cuda_stand_in::install(&dumper);
  int cases = 0;
  std::string errors;
  for (const DeviceCase& one : device_cases(settings.elems)) {
    if (one.waits_for_others || one.name.find(settings.cases) == std::string::npos) continue;
    ++cases;
    dumper.set_case(one.name);
    errors = one.run(settings.seed);
    if (!errors.empty()) break;
  }
  cuda_stand_in::install(nullptr);
  if (!errors.empty()) throw core::Error(core::Failure::wrong_data, errors);
  std::printf("%d launches of %d cases are in %s\n", dumper.written(), cases, settings.out.c_str());
  return dumper.written() > 0 ? 0 : 1;
}

}  // namespace lockstep::ptx
