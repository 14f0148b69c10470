#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "core/error.h"
#include "core/output_file.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {
namespace {

std::string file_name(std::int32_t rank) {
  const std::string digits = std::to_string(rank);
  return "rank-" + std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits + ".safetensors";
}

// Outcome of one rank's action, as reported to the others.
constexpr std::string_view kFailed = "failed: ";
std::string outcome(const std::function<std::string()>& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return std::string(kFailed) + error.what();
  }
}

// Pieces by tensor name, in the order of the whole tensors.
using PiecesByTensor = std::map<std::string, std::vector<Piece>>;
PiecesByTensor by_tensor(std::span<const WholeTensor> tensors, std::span<const Piece> pieces) {
  PiecesByTensor all;
  for (const Piece& piece : pieces) {
    if (piece.count > 0) all[tensors[piece.tensor].name].push_back(piece);
  }
  for (auto& [tensor, list] : all) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Piece& a, const Piece& b) { return a.whole_begin < b.whole_begin; });
  }
  return all;
}

std::map<std::string, std::vector<Interval>> runs_of(const PiecesByTensor& pieces) {
  std::map<std::string, std::vector<Interval>> runs;
  for (const auto& [tensor, list] : pieces) {
    for (const Piece& piece : list) runs[tensor].push_back({piece.whole_begin, piece.count});
  }
  return runs;
}

// The tensors of a rank, as reported to the others.
std::string held_text(std::span<const WholeTensor> tensors, const PiecesByTensor& pieces) {
  Contents held;
  for (const WholeTensor& tensor : tensors) held.tensors[tensor.name] = tensor.shape;
  held.files.push_back({.name = "", .runs = runs_of(pieces)});
  return part_text(held);
}

// Pieces of tensors that no earlier rank has, each once.
PiecesByTensor own_pieces(const PiecesByTensor& pieces, std::span<const std::string> held_before) {
  std::map<std::string, IntervalSet> taken;
  for (const std::string& text : held_before) {
    const Contents held = parse_part(text);
    for (const auto& [tensor, runs] : held.files.front().runs) {
      for (const Interval& run : runs) taken[tensor].add(run);
    }
  }
  PiecesByTensor own;
  for (const auto& [tensor, list] : pieces) {
    for (const Piece& piece : list) {
      for (const Interval& part : taken[tensor].add({piece.whole_begin, piece.count})) {
        float* const data = piece.data + (part.begin - piece.whole_begin);
        own[tensor].push_back({piece.tensor, part.begin, part.count, data});
      }
    }
  }
  return own;
}

std::int64_t total_of(const std::vector<Piece>& pieces) {
  std::int64_t elems = 0;
  for (const Piece& piece : pieces) elems += piece.count;
  return elems;
}

FileEntry write_file(const std::string& folder, const std::string& name, const PiecesByTensor& pieces) {
  std::vector<TensorInfo> infos;
  for (const auto& [tensor, list] : pieces)
    infos.push_back({.name = tensor, .dtype = "F32", .shape = {total_of(list)}});
  SafetensorsWriter writer(folder + "/" + name, std::move(infos), {{"format", "lockstep-checkpoint"}});
  for (const auto& [tensor, list] : pieces) {
    for (const Piece& piece : list) {
      writer.write(std::as_bytes(std::span(piece.data, static_cast<std::size_t>(piece.count))));
    }
  }
  return {.name = name, .sum = writer.commit(), .runs = runs_of(pieces)};
}

// Writes this rank's file if it has anything to write. Returns the file's entry in the manifest.
std::string write_part(const std::string& folder, std::int32_t rank, const PiecesByTensor& pieces) {
  Contents part;
  if (!pieces.empty()) part.files.push_back(write_file(folder, file_name(rank), pieces));
  return part_text(part);
}

Contents join(const Manifest& manifest, const std::vector<std::string>& held, const std::vector<std::string>& written) {
  Contents all{.manifest = manifest};
  for (const std::string& text : held) {
    const Contents part = parse_part(text);
    for (const auto& [name, shape] : part.tensors) {
      const auto [there, is_new] = all.tensors.emplace(name, shape);
      LOCKSTEP_CHECK(is_new || there->second == shape, name + " is of different shapes on different ranks");
    }
  }
  for (const std::string& text : written) {
    Contents part = parse_part(text);
    for (FileEntry& file : part.files) all.files.push_back(std::move(file));
  }
  return all;
}

void write_manifest(const std::string& partial, const Contents& contents) {
  const std::string path = partial + "/manifest.json";
  check_whole(contents, path);
  core::AtomicFile file(path);
  file.write(contents_text(contents));
  file.commit();
}

}  // namespace

void save_checkpoint(const std::string& folder, const Manifest& manifest, std::span<const WholeTensor> tensors,
                     std::span<const Piece> pieces, const CheckpointRanks& ranks, std::int32_t keep) {
  const bool leads = ranks.rank == 0;
  const std::string partial = partial_folder(folder, manifest.step);
  // All ranks do their part of a phase, then all learn whether every rank succeeded.
  const auto phase = [&](const std::function<std::string()>& action) {
    std::vector<std::string> outcomes = ranks.gather(outcome(action));
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      if (outcomes[r].rfind(kFailed, 0) != 0) continue;
      if (leads) abandon_checkpoint(folder, manifest.step);
      throw core::Error(core::Failure::internal, "cannot save a checkpoint in " + folder + ": rank " +
                                                     std::to_string(r) + ": " + outcomes[r].substr(kFailed.size()));
    }
    return outcomes;
  };
  const PiecesByTensor pieces_here = by_tensor(tensors, pieces);
  const std::vector<std::string> held = phase([&] {
    if (leads) begin_checkpoint(folder, manifest.step);
    return held_text(tensors, pieces_here);
  });
  const std::vector<std::string> written = phase([&] {
    const auto before = std::span(held).first(static_cast<std::size_t>(ranks.rank));
    return write_part(partial, ranks.rank, own_pieces(pieces_here, before));
  });
  phase([&]() -> std::string {
    if (!leads) return "";
    write_manifest(partial, join(manifest, held, written));
    publish_checkpoint(folder, manifest.step, keep);
    return "";
  });
}

std::vector<std::string> gather_text(transports::World& world, const std::string& mine) {
  const std::vector<std::uint64_t> sizes = transports::all_gather_value(world, std::uint64_t{mine.size()});
  const std::size_t room = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine;
  padded.resize(room);
  std::string all(room * sizes.size(), '\0');
  world.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < sizes.size(); ++r) texts.push_back(all.substr(r * room, sizes[r]));
  return texts;
}

namespace {

core::Error damaged(const std::string& file, const std::string& why) {
  return {core::Failure::wrong_data, file + " is damaged: " + why};
}

std::string found(const std::string& path) {
  const std::optional<std::string> checkpoint = find_checkpoint(path);
  if (checkpoint) return *checkpoint;
  throw core::usage_error("no checkpoint in " + path + "; allowed: a folder step-N, or one that has such folders");
}

void check_bytes(const InputFile& file, const FileEntry& entry) {
  if (file.bytes() == entry.sum.bytes) return;
  throw damaged(file.path(), "it has " + std::to_string(file.bytes()) + " bytes, its manifest has " +
                                 std::to_string(entry.sum.bytes));
}

// A manifest may only name files in its own folder.
void check_name(const std::string& manifest, const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name.front() != '.') return;
  throw damaged(manifest, "it names the file \"" + name + "\"");
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(found(path)) {
  const std::string manifest = path_ + "/manifest.json";
  contents_ = parse_contents(read_text(manifest), manifest);
  check_whole(contents_, manifest);
  for (const FileEntry& entry : contents_.files) {
    check_name(manifest, entry.name);
    check_bytes(InputFile(path_ + "/" + entry.name), entry);
  }
  files_.resize(contents_.files.size());
  locate();
}

void Checkpoint::locate() {
  for (std::size_t f = 0; f < contents_.files.size(); ++f) {
    for (const auto& [tensor, runs] : contents_.files[f].runs) {
      std::int64_t file_begin = 0;
      for (const Interval& run : runs) {
        runs_[tensor].push_back({run, f, file_begin});
        file_begin += run.count;
      }
    }
  }
  for (auto& [tensor, runs] : runs_) {
    std::sort(runs.begin(), runs.end(), [](const Located& a, const Located& b) { return a.run.begin < b.run.begin; });
  }
}

const std::vector<Checkpoint::Located>& Checkpoint::runs_of(const WholeTensor& tensor) const {
  const auto there = contents_.tensors.find(tensor.name);
  if (there == contents_.tensors.end()) throw core::usage_error(path_ + " has no tensor \"" + tensor.name + "\"");
  if (there->second == tensor.shape) return runs_.at(tensor.name);
  throw core::usage_error(path_ + ": tensor \"" + tensor.name + "\" is " + shape_text(there->second) +
                          ", the model's is " + shape_text(tensor.shape));
}

SafetensorsFile& Checkpoint::verified(std::size_t file) {
  if (files_[file]) return *files_[file];
  const FileEntry& entry = contents_.files[file];
  const InputFile bytes(path_ + "/" + entry.name);
  check_bytes(bytes, entry);
  const std::uint32_t crc32 = crc32_of(bytes);
  if (crc32 != entry.sum.crc32) {
    throw damaged(bytes.path(),
                  "its checksum is " + crc32_text(crc32) + ", its manifest has " + crc32_text(entry.sum.crc32));
  }
  auto opened = std::make_unique<SafetensorsFile>(bytes.path());
  check_header(*opened, entry);
  files_[file] = std::move(opened);
  return *files_[file];
}

void Checkpoint::check_header(const SafetensorsFile& file, const FileEntry& entry) const {
  for (const auto& [tensor, runs] : entry.runs) {
    std::int64_t elems = 0;
    for (const Interval& run : runs) elems += run.count;
    const TensorInfo* const info = file.find(tensor);
    if (info != nullptr && info->dtype == "F32" && info->elems() == elems) continue;
    throw damaged(file.path(), "it lacks the " + std::to_string(elems) + " F32 elements of tensor \"" + tensor +
                                   "\" that its manifest names");
  }
}

void Checkpoint::read(std::span<const WholeTensor> tensors, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (piece.count == 0) continue;
    const WholeTensor& tensor = tensors[piece.tensor];
    const std::vector<Located>& runs = runs_of(tensor);
    LOCKSTEP_CHECK(0 <= piece.whole_begin && piece.whole_begin + piece.count <= elems_of(tensor.shape),
                   "a piece of " + tensor.name);
    read(tensor.name, runs, piece);
  }
}

// The runs leave no gap, so the piece lies in the run that contains its begin and in those after it.
void Checkpoint::read(const std::string& tensor, const std::vector<Located>& runs, const Piece& piece) {
  const std::int64_t end = piece.whole_begin + piece.count;
  auto run = std::upper_bound(runs.begin(), runs.end(), piece.whole_begin,
                              [](std::int64_t begin, const Located& r) { return begin < r.run.begin; });
  --run;
  for (std::int64_t begin = piece.whole_begin; begin < end; ++run) {
    const std::int64_t skipped = begin - run->run.begin;
    const std::int64_t count = std::min(end - begin, run->run.count - skipped);
    const SafetensorsFile& file = verified(run->file);
    file.read(*file.find(tensor), run->file_begin + skipped,
              std::span(piece.data + (begin - piece.whole_begin), static_cast<std::size_t>(count)));
    begin += count;
  }
}

void require_same(const std::string& what, const Integers& found, const Integers& wanted) {
  Integers all = wanted;
  all.insert(found.begin(), found.end());
  const auto text = [](const Integers& values, const std::string& name) {
    const auto value = values.find(name);
    return value == values.end() ? "nothing" : std::to_string(value->second);
  };
  for (const auto& [name, value] : all) {
    const std::string have = text(found, name);
    const std::string want = text(wanted, name);
    if (have != want) throw core::usage_error(fmt::format("{}: {} is {}, the model's is {}", what, name, have, want));
  }
}

namespace {

using parallel::ParameterStore;
using State = ParameterStore::State;

struct NamedState {
  State state;
  std::string_view prefix;
};
constexpr std::array<NamedState, 3> kStates = {{
    {State::master, "master."},
    {State::first_moment, "first_moment."},
    {State::second_moment, "second_moment."},
}};

void add(ParameterStore& store, State state, std::string_view prefix, Held& to) {
  const std::size_t first = to.tensors.size();
  for (const workload::Parameter& parameter : store.parameters()) {
    to.tensors.push_back({std::string(prefix) + parameter.name, parameter.shape});
  }
  for (const ParameterStore::Run& run : store.runs(state)) {
    to.pieces.push_back({first + run.parameter, run.whole_begin, run.count, run.data});
  }
}

}  // namespace

void add_state(ParameterStore& store, Held& to) {
  for (const NamedState& named : kStates) {
    if (store.has(named.state)) add(store, named.state, named.prefix, to);
  }
}

void add_masters(ParameterStore& store, Held& to) {
  add(store, State::master, "", to);
}

void state_was_read(ParameterStore& store) {
  for (const NamedState& named : kStates) store.store_back(named.state);
  store.masters_changed();
}

void masters_were_read(ParameterStore& store) {
  store.store_back(State::master);
  store.masters_changed();
}

}  // namespace lockstep::trainer
