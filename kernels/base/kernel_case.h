// A kernel with a shape, a dtype and inputs: one object that is tested, timed, drawn on the roofline and, by its cost,
// simulated. Made from a kernel's arguments, whose views have dtypes and lengths but no memory yet.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/base/context.h"
#include "kernels/base/operands.h"

namespace lockstep::kernels {

// How an input's elements are drawn; each depends only on (seed, operand, index).
struct Draw {
  enum class Kind : std::uint8_t {
    normal,    // mean 0, standard deviation `scale`
    positive,  // uniform in [scale / 2, scale)
    index,     // integers, uniform in [0, below)
    given,     // `values`, repeated
    zero,
  };
  Kind kind = Kind::normal;
  double scale = 1;
  std::int64_t below = 0;  // for given: 0, or all values are integers in [0, below) that name rows, as for index
  std::vector<double> values = {};  // for given only
};

// Properties of a case that its kernel's arguments do not contain.
struct CaseFacts {
  std::string shape;                       // "B8_T1024_C768"
  core::DType dtype = core::DType::f32;    // dtype of the activations, for the name
  std::map<std::string, Draw> draws = {};  // operands that are not normal with scale 1
  // Length of the longest sum that an element of an output needs; 1 for outputs not listed. See allowed_error().
  std::map<std::string, std::int64_t> terms = {};
  // Outputs that are sums of products with computed factors that may be rounded to the dtype first, as tensor cores
  // require: the probabilities of attention.
  std::set<std::string> rounded_factors = {};
  // Overwrites inputs that follow from others, such as a backward's mean and rstd.
  std::function<void(ReferenceData<double>&)> derive = {};
  bool deterministic = true;  // bitwise equal from run to run and for any number of threads
};

struct CaseOperand {
  std::string name;
  Access access;
  core::DType dtype;
  std::int64_t elems;
  Draw draw;
  std::int64_t terms;
  bool rounded_factors = false;
  std::size_t bytes() const { return size_bytes(dtype, elems); }
};

struct KernelCase {
  std::string kernel;  // "layernorm_fwd"
  std::string shape;
  core::DType dtype;
  std::vector<CaseOperand> operands;
  Cost cost;
  bool deterministic;

  // `memory` holds the operands, in their order, on the context's device.
  std::function<void(std::span<void* const> memory, const Context& where)> run;
  // For kernels with several implementations (null otherwise): the one that is used there, known after the first run:
  // "packed by rows".
  std::function<std::string(const Context& where)> implementation;
  std::function<void(ReferenceData<double>&)> derive;  // may be empty
  std::function<void(ReferenceData<double>&)> reference;
  std::function<void(ReferenceData<Counted>&)> counted_reference;

  std::string name() const;  // "layernorm_fwd/bf16/B8_T1024_C768"
};

// Draws inputs in f64, rounded to the operands' dtypes and with derived inputs set; outputs are zero.
ReferenceData<double> draw_inputs(const KernelCase& kernel_case, std::uint64_t seed);

// Converts between f64 and an operand's memory on the host. Values are rounded to nearest, ties to even; integers are
// exact.
void store(std::span<const double> values, core::DType dtype, void* memory);
std::vector<double> load(core::DType dtype, const void* memory, std::int64_t elems);

// Returns how far a result may be from the reference `wanted`, if the largest element of the operand is `largest`: two
// roundings to the operand's dtype, and sums of `terms` numbers in f32, whose error grows as the square root of their
// length: lambda sqrt(n) u (Higham, Mary 2019, SIAM J. Sci. Comput. 41, theorem 2.4) with lambda = 8. Rounded factors
// add one rounding of the largest element: errors of a sum's terms add up like the terms themselves.
double allowed_error(const CaseOperand& operand, double wanted, double largest);

// Makes the case of a kernel whose views have dtypes and lengths (shaped(), operands.h).
template <class Args>
KernelCase make_shaped_case(const Args& args, CaseFacts facts) {
  args.check_shape();
  KernelCase result;
  result.kernel = std::string(args.name());
  result.shape = std::move(facts.shape);
  result.dtype = facts.dtype;
  for (const Operand& operand : operands_of(args)) {
    const auto draw = facts.draws.find(operand.name);
    const auto terms = facts.terms.find(operand.name);
    result.operands.push_back({operand.name, operand.access, operand.dtype, operand.expected_elems,
                               draw == facts.draws.end() ? Draw{} : draw->second,
                               terms == facts.terms.end() ? 1 : terms->second,
                               facts.rounded_factors.count(operand.name) > 0});
  }
  result.cost = cost_of(args);
  result.deterministic = facts.deterministic;
  result.derive = std::move(facts.derive);
  result.run = [args](std::span<void* const> memory, const Context& where) {
    kernels::run(with_memory(args, memory), where);
  };
  if constexpr (requires(const Context& where) { implementation_of(args, where); }) {
    result.implementation = [args](const Context& where) { return implementation_of(args, where); };
  }
  result.reference = [args](ReferenceData<double>& data) { reference(args, data); };
  result.counted_reference = [args](ReferenceData<Counted>& data) { reference(args, data); };
  return result;
}

// Makes the case of a kernel whose views are not filled in: a view that may have several dtypes gets the facts'.
template <class Args>
KernelCase make_case(const Args& shape, CaseFacts facts) {
  const Args args = shaped(shape, facts.dtype);
  return make_shaped_case(args, std::move(facts));
}

// Returns the cases that add(cases, shape, dtype) appends, for each dtype and in it for each shape.
template <class Types, class Shapes, class Add>
std::vector<KernelCase> cases_of(const Types& dtypes, const Shapes& shapes, const Add& add) {
  std::vector<KernelCase> cases;
  for (const core::DType dtype : dtypes) {
    for (const auto& shape : shapes) add(cases, shape, dtype);
  }
  return cases;
}

// Shapes that cases of several kernel families share.

inline constexpr std::array kActivationDTypes{core::DType::f32, core::DType::bf16, core::DType::f16};
inline constexpr std::array kBenchDTypes{core::DType::f32, core::DType::bf16};

// Lengths around and far from the widths of vectors, primes among them. The longest, beyond a core's caches, occurs
// once per kernel.
inline std::vector<std::int64_t> test_counts(core::DType dtype) {
  return {1, 3, 17, 64, 127, 1031, dtype == core::DType::f32 ? 1000003 : 100003};
}

// A batch of token vectors.
struct Tokens {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t channels;
  std::int64_t rows() const { return batch * length; }
  // Returns "B8_T128_C256"; `columns` replaces the channels if a layer is wider.
  std::string name(std::int64_t columns = 0) const {
    return "B" + std::to_string(batch) + "_T" + std::to_string(length) + "_C" +
           std::to_string(columns == 0 ? channels : columns);
  }
};

// The mini-trainer's small model, GPT-2 124M at B=4 T=64, and a batch that fits in no cache.
inline constexpr std::array kBenchTokens{Tokens{8, 128, 256}, Tokens{4, 64, 768}, Tokens{8, 1024, 768}};

}  // namespace lockstep::kernels
