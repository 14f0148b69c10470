#include "trainer/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
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

}  // namespace lockstep::trainer
