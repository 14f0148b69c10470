// Checkpoints: written by any layout, read into any other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/transports/transport.h"
#include "parallel/parameters/store.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {

// Writes a checkpoint: a safetensors file for each rank that has pieces, then the manifest, then the folder's name.

// Communication among the ranks that write one checkpoint.
struct CheckpointRanks {
  std::int32_t rank = 0;
  // All ranks call it with one text each and get all texts, in rank order. No rank returns before all have called. Over
  // a World: gather_text.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// All ranks call it, with the same folder (on a shared file system), manifest and `keep`. Each passes all pieces that
// it has. Pieces that several ranks have (replicas of data-parallel and tensor-parallel ranks, tied weights) are
// written by the first such rank; together they have every element of every tensor that any rank lists. A tensor may be
// listed twice. A folder has one writer at a time.
//
// Returns on all ranks once the checkpoint is on disk under its name, or throws on all ranks and leaves the earlier
// state unchanged. A kill at any moment leaves the last complete checkpoint and `latest` naming it.
void save_checkpoint(const std::string& folder, const Manifest& manifest, std::span<const WholeTensor> tensors,
                     std::span<const Piece> pieces, const CheckpointRanks& ranks, std::int32_t keep);

// ---- Texts of all ranks over a World, as save_checkpoint needs them.

// Returns [rank] -> that rank's text. All ranks call it.
std::vector<std::string> gather_text(transports::World& world, const std::string& mine);

// Reads a checkpoint of any layout into any layout: every rank asks for the pieces that it has and reads them from the
// files that contain them.

// For use by one thread. Every failure is an Error of one line with the file and the reason.
class Checkpoint {
 public:
  // Takes a folder step-N, or one that contains such folders and then uses the latest. Reads the manifest and checks
  // its checksum, its version, that all files exist with the right length, and that they contain every tensor
  // completely.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }  // the folder step-N
  const Manifest& manifest() const { return contents_.manifest; }
  const std::map<std::string, Shape>& tensors() const { return contents_.tensors; }

  // Fills the pieces. The checksum of an entire file is verified before any of its elements is used.
  void read(std::span<const WholeTensor> tensors, std::span<const Piece> pieces);

 private:
  struct Located {  // a run, and the position of its elements in the file's tensor
    Interval run;
    std::size_t file = 0;
    std::int64_t file_begin = 0;
  };
  void locate();
  const std::vector<Located>& runs_of(const WholeTensor& tensor) const;
  SafetensorsFile& verified(std::size_t file);
  void check_header(const SafetensorsFile& file, const FileEntry& entry) const;
  void read(const std::string& tensor, const std::vector<Located>& runs, const Piece& piece);

  std::string path_;
  Contents contents_;
  std::map<std::string, std::vector<Located>> runs_;     // by tensor, ascending
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // files whose checksum has been verified
};

// Throws a usage Error that names the first difference; `what` describes the origin of `found`.
void require_same(const std::string& what, const Integers& found, const Integers& wanted);

// The part of a checkpoint that comes from a parameter store: master weights and the moments that its optimizer
// has, as tensors "master.NAME", "first_moment.NAME" and "second_moment.NAME".

// Tensors and a rank's pieces, for save_checkpoint, Checkpoint::read and read_hugging_face. Valid as
// long as the stores' runs are.
struct Held {
  std::vector<WholeTensor> tensors;
  std::vector<Piece> pieces;
};

// Adds the state of a store. If a rank has several stages, all of its stores go into one Held.
void add_state(parallel::ParameterStore& store, Held& to);
// Adds only the master weights, under the parameter's own name.
void add_masters(parallel::ParameterStore& store, Held& to);

// Call it after the pieces were read into: updates the device's copies and the weights that kernels read. (With ZeRO 1
// and 2 a gather has to follow.)
void state_was_read(parallel::ParameterStore& store);
void masters_were_read(parallel::ParameterStore& store);

}  // namespace lockstep::trainer
