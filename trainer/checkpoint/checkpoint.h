// Reads a checkpoint (save_checkpoint.h), whatever layout wrote it and whatever layout reads it: every rank asks for
// the pieces that it has, and gets them from the files that have them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pieces.h"
#include "trainer/checkpoint/safetensors.h"

namespace lockstep::trainer {

// For use by one thread. All failures are Errors of one line with the file and the reason.
class Checkpoint {
 public:
  // A folder step-N, or one that has such folders: then the latest. Reads the manifest and checks it: its checksum, its
  // version, that all files are there in their length, and that they make up every tensor.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }  // of the folder step-N
  const Manifest& manifest() const { return contents_.manifest; }
  const std::map<std::string, Shape>& tensors() const { return contents_.tensors; }

  // Fills the pieces. Before any element of a file is used the checksum of the whole file has been verified.
  void read(std::span<const WholeTensor> tensors, std::span<const Piece> pieces);

 private:
  struct Located {  // a run, and where its elements begin in the file's tensor
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
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // those that were verified
};

// Throws a usage Error that names the first difference: "what" is whose values `found` are.
void require_same(const std::string& what, const Integers& found, const Integers& wanted);

}  // namespace lockstep::trainer
