#include "trainer/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <exception>
#include <map>
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

// What an action of one rank came to, as the others hear of it.
constexpr std::string_view kFailed = "failed: ";
std::string outcome(const std::function<std::string()>& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return std::string(kFailed) + error.what();
  }
}

// Pieces of a tensor lie one behind the other in a file, in the order of the whole.
using PiecesByTensor = std::map<std::size_t, std::vector<Piece>>;
PiecesByTensor by_tensor(std::span<const Piece> pieces) {
  PiecesByTensor all;
  for (const Piece& piece : pieces) {
    if (piece.count > 0) all[piece.tensor].push_back(piece);
  }
  for (auto& [tensor, list] : all) {
    std::sort(list.begin(), list.end(), [](const Piece& a, const Piece& b) { return a.whole_begin < b.whole_begin; });
  }
  return all;
}

std::int64_t total_of(const std::vector<Piece>& pieces) {
  std::int64_t elems = 0;
  for (const Piece& piece : pieces) elems += piece.count;
  return elems;
}

FileEntry write_file(const std::string& folder, const std::string& name, std::span<const WholeTensor> tensors,
                     const PiecesByTensor& pieces) {
  FileEntry entry{.name = name};
  std::vector<TensorInfo> infos;
  for (const auto& [tensor, list] : pieces) {
    infos.push_back({.name = tensors[tensor].name, .dtype = "F32", .shape = {total_of(list)}});
    for (const Piece& piece : list) entry.runs[tensors[tensor].name].push_back({piece.whole_begin, piece.count});
  }
  SafetensorsWriter writer(folder + "/" + name, std::move(infos), {{"format", "lockstep-checkpoint"}});
  for (const auto& [tensor, list] : pieces) {
    for (const Piece& piece : list) {
      writer.write(std::as_bytes(std::span(piece.data, static_cast<std::size_t>(piece.count))));
    }
  }
  entry.sum = writer.commit();
  return entry;
}

// This rank's file, and what the manifest will say of it.
std::string write_part(const std::string& folder, std::int32_t rank, std::span<const WholeTensor> tensors,
                       std::span<const Piece> pieces) {
  Contents part;
  for (const WholeTensor& tensor : tensors) part.tensors[tensor.name] = tensor.shape;
  const PiecesByTensor sorted = by_tensor(pieces);
  if (!sorted.empty()) part.files.push_back(write_file(folder, file_name(rank), tensors, sorted));
  return part_text(part);
}

Contents join(const Manifest& manifest, const std::vector<std::string>& parts) {
  Contents all{.manifest = manifest};
  for (const std::string& text : parts) {
    Contents part = parse_part(text);
    for (const auto& [name, shape] : part.tensors) {
      const auto [there, is_new] = all.tensors.emplace(name, shape);
      LOCKSTEP_CHECK(is_new || there->second == shape, name + " is of different shapes on different ranks");
    }
    for (FileEntry& file : part.files) all.files.push_back(std::move(file));
  }
  return all;
}

void write_manifest(const std::string& partial, const Manifest& manifest, const std::vector<std::string>& parts) {
  const std::string path = partial + "/manifest.json";
  const Contents contents = join(manifest, parts);
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
  // All do their part of a phase, then all know whether all have done it.
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
  phase([&]() -> std::string {
    if (leads) begin_checkpoint(folder, manifest.step);
    return "";
  });
  const std::vector<std::string> parts = phase([&] { return write_part(partial, ranks.rank, tensors, pieces); });
  phase([&]() -> std::string {
    if (!leads) return "";
    write_manifest(partial, manifest, parts);
    publish_checkpoint(folder, manifest.step, keep);
    return "";
  });
}

}  // namespace lockstep::trainer
