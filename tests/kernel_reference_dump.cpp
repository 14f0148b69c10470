// Writes results of kernels' references for random inputs, so that tests/test_gradients.py can compare them with
// PyTorch's automatic differentiation: kernel_reference_dump FOLDER. A case is a folder in FOLDER with case.json
// (kernel, its arguments, operands) and, for each operand, before/NAME.npy and after/NAME.npy in f64.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/kernel_reference_cases.h"
#include "tests/npy.h"

namespace {

namespace fs = std::filesystem;
using lockstep::kernels::Access;
using lockstep::kernels::CaseOperand;
using lockstep::kernels::KernelCase;
using lockstep::kernels::ReferenceData;
using lockstep::kernels::tests::ReferenceCase;

void write_all(const fs::path& folder, const ReferenceData<double>& data) {
  fs::create_directories(folder);
  for (const auto& [name, values] : data.arrays()) lockstep::tests::write_npy(folder / (name + ".npy"), values);
}

// Inputs that are computed from others are not rounded to the operand's dtype, so that both sides compute from the same
// numbers.
ReferenceData<double> exact_inputs(const KernelCase& one) {
  ReferenceData<double> data = lockstep::kernels::draw_inputs(one, /*seed=*/7);
  if (one.derive) one.derive(data);
  for (std::size_t k = 0; k < one.operands.size(); ++k) {
    auto& values = data.arrays()[k].second;
    if (one.operands[k].access == Access::write) values.assign(values.size(), 0.0);
  }
  return data;
}

void dump(const fs::path& folder, const ReferenceCase& dumped) {
  ReferenceData<double> data = exact_inputs(dumped.one);
  write_all(folder / "before", data);
  dumped.one.reference(data);
  write_all(folder / "after", data);
  nlohmann::json operands = nlohmann::json::object();
  for (const CaseOperand& operand : dumped.one.operands) operands[operand.name] = operand.access != Access::read;
  std::ofstream(folder / "case.json") << nlohmann::json{
      {"kernel", dumped.one.kernel}, {"arguments", dumped.arguments}, {"written", operands}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernel_reference_dump FOLDER\n");
    return 6;
  }
  try {
    for (const ReferenceCase& dumped : lockstep::kernels::tests::reference_cases()) {
      dump(fs::path(argv[1]) / (dumped.one.kernel + "-" + dumped.one.shape), dumped);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_reference_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
