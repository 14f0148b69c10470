// Reads a checkpoint (save_checkpoint.h) of any layout into any layout: every rank asks for the pieces that it has and
// reads them from the files that contain them.
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

}  // namespace lockstep::trainer
