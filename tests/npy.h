// Arrays for tests in Python, as NumPy's files.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep::tests {

// One axis, f64.
void write_npy(const std::filesystem::path& path, const std::vector<double>& values);

}  // namespace lockstep::tests
