// Arrays for tests in Python, as NumPy's files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::tests {

// One axis, f64. Version 1.0 of NumPy's format: magic, length of the header, a Python literal padded to 64 bytes,
// little-endian data.
inline void write_npy(const std::filesystem::path& path, const std::vector<double>& values) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",), }";
  constexpr std::size_t kBefore = 10;
  header.resize((kBefore + header.size() + 1 + 63) / 64 * 64 - kBefore - 1, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.put(static_cast<char>(header.size() & 0xff));
  file.put(static_cast<char>(header.size() >> 8));
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace lockstep::tests
