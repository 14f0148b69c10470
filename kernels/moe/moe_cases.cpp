#include <fmt/format.h>

#include "core/random.h"
#include "kernels/base/kernel_case.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

using GroupRows = std::vector<std::int64_t>;

struct Mixture {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t top_k;
  std::int64_t columns;
  std::int64_t capacity = 0;

  AssignSlots assignment() const {
    return {.tokens = tokens, .experts = experts, .top_k = top_k, .capacity = capacity};
  }
  std::string name() const {
    return fmt::format("T{}_E{}_k{}_C{}{}", tokens, experts, top_k, columns,
                       capacity == 0 ? "" : fmt::format("_cap{}", capacity));
  }
};

Draw index_below(std::int64_t below) {
  return {.kind = Draw::Kind::index, .below = below};
}

// Draws choices of a token that differ from each other.
void draw_choices(const RouterShape& shape, ReferenceData<double>& data) {
  for (std::int64_t c = 0; c < shape.copies(); ++c) {
    const auto drawn = static_cast<std::int64_t>(core::hash64(1, 2, static_cast<std::uint64_t>(c / shape.top_k)) >> 8U);
    data["choices"][static_cast<std::size_t>(c)] = static_cast<double>((drawn + c % shape.top_k) % shape.experts);
  }
}

// Draws choices, and computes the slots and copies that belong to them.
void draw_slots(const Mixture& mixture, ReferenceData<double>& data) {
  const AssignSlots args = mixture.assignment();
  ReferenceData<double> all;
  std::vector<double> choices;
  for (std::int64_t c = 0; c < args.num_copies(); ++c) {
    const std::uint64_t drawn = core::hash64(3, 4, static_cast<std::uint64_t>(c));
    choices.push_back(static_cast<double>(drawn % static_cast<std::uint64_t>(args.experts)));
  }
  all.add("choices", choices);
  all.add("counts", std::vector<double>(static_cast<std::size_t>(args.experts)));
  all.add("slots", std::vector<double>(choices.size()));
  all.add("copies", std::vector<double>(static_cast<std::size_t>(args.rows())));
  reference(args, all);
  for (const char* name : {"slots", "copies"}) {
    if (!data[name].empty()) put<double>(all[name], data[name], 0);
  }
}

// Without gates, a token of which every copy is dropped would have no operation to count: at most the first copy is
// dropped.
void draw_slots_of_sum(const Unpermute& args, ReferenceData<double>& data) {
  for (std::size_t c = 0; c < data["slots"].size(); ++c) {
    if (c % static_cast<std::size_t>(args.top_k) == 0 && c % 3 == 0 && args.top_k > 1) data["slots"][c] = -1;
  }
}

void add_router(std::vector<KernelCase>& cases, const Mixture& mixture, core::DType dtype) {
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid}) {
    for (const bool normalised : {false, true}) {
      const RouterShape shape{.tokens = mixture.tokens,
                              .experts = mixture.experts,
                              .top_k = mixture.top_k,
                              .scores = scores,
                              .normalised = normalised,
                              .scale = normalised ? 2.5F : 1};
      const bool is_softmax = scores == RouterScores::softmax;
      CaseFacts facts{.shape = fmt::format("T{}_E{}_k{}_{}{}", shape.tokens, shape.experts, shape.top_k,
                                           is_softmax ? "softmax" : "sigmoid", normalised ? "_normalised" : ""),
                      .dtype = dtype,
                      .terms = {{"gates", shape.experts}, {"d_logits", 2 * shape.experts}}};
      // A bias goes with the sigmoid, and the losses with the softmax.
      cases.push_back(make_case(RouterForward{.shape = shape, .with_bias = !is_softmax}, facts));
      facts.draws = {{"counts", index_below(shape.tokens)}};
      facts.derive = [shape](ReferenceData<double>& data) { draw_choices(shape, data); };
      const bool with_losses = is_softmax && !normalised;
      const float losses = with_losses ? 1 / static_cast<float>(shape.tokens) : 0;
      cases.push_back(make_case(RouterBackward{.shape = shape, .balance_scale = losses, .z_scale = losses}, facts));
      if (!with_losses) continue;
      facts.terms = {{"probabilities", shape.tokens + shape.experts}, {"z", shape.tokens + shape.experts}};
      cases.push_back(make_case(RouterLoads{.shape = shape}, facts));
    }
  }
}

// Router of DeepSeek-V3 (arXiv:2412.19437, section 4.2).
RouterShape deepseek_router(std::int64_t tokens) {
  return {.tokens = tokens,
          .experts = 256,
          .top_k = 8,
          .scores = RouterScores::sigmoid,
          .normalised = true,
          .scale = 2.5F,
          .groups = 8,
          .limit = 4};
}

// Adds a case with limited groups; the groups change only which experts are chosen.
void add_limited_router(std::vector<KernelCase>& cases, RouterShape shape, core::DType dtype) {
  const bool is_softmax = shape.scores == RouterScores::softmax;
  CaseFacts facts{.shape = fmt::format("T{}_E{}_k{}_{}_{}of{}", shape.tokens, shape.experts, shape.top_k,
                                       is_softmax ? "softmax" : "sigmoid", shape.limit, shape.groups),
                  .dtype = dtype,
                  .terms = {{"gates", shape.experts}}};
  cases.push_back(make_case(RouterForward{.shape = shape, .with_bias = !is_softmax}, facts));
}

void add_rows(std::vector<KernelCase>& cases, const Mixture& m, core::DType dtype) {
  const std::int64_t rows = m.assignment().rows();
  CaseFacts facts{.shape = m.name(),
                  .dtype = dtype,
                  .terms = {{"out", m.top_k}, {"d_gates", m.columns}},
                  .derive = [m](ReferenceData<double>& data) { draw_slots(m, data); }};
  cases.push_back(make_case(Permute{.tokens = m.tokens, .top_k = m.top_k, .rows = rows, .columns = m.columns}, facts));
  Unpermute back{.tokens = m.tokens, .top_k = m.top_k, .rows = rows, .columns = m.columns};
  cases.push_back(make_case(back, facts));
  cases.push_back(
      make_case(UnpermuteBackward{.tokens = m.tokens, .top_k = m.top_k, .rows = rows, .columns = m.columns}, facts));
  back.with_gates = false;
  facts.draws = {{"slots", index_below(rows)}};
  facts.derive = [back](ReferenceData<double>& data) { draw_slots_of_sum(back, data); };
  cases.push_back(make_case(back, facts));
}

void add_assignment(std::vector<KernelCase>& cases, const Mixture& mixture) {
  cases.push_back(make_case(
      mixture.assignment(),
      {.shape = mixture.name(), .dtype = core::DType::i32, .draws = {{"choices", index_below(mixture.experts)}}}));
}

constexpr std::int64_t kGeluTerms = 16;  // gelu' has its own f32 error, as large as that of a sum of this length

// Products are computed by the implementation that was measured to be fastest, so bits may differ from pool to pool.
CaseFacts product_facts(std::string shape, core::DType dtype, std::map<std::string, std::int64_t> terms) {
  return {.shape = std::move(shape), .dtype = dtype, .terms = std::move(terms), .deterministic = false};
}

void add_products(std::vector<KernelCase>& cases, const GroupRows& rows, std::int64_t inputs, std::int64_t outputs,
                  const std::string& shape, core::DType dtype) {
  const GroupedShape grouped{rows, inputs, outputs};
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
    cases.push_back(case_of(shaped(GroupedGemmForward{.shape = grouped, .epilogue = epilogue}, dtype), shape));
  }
  for (const bool flag : {false, true}) {
    cases.push_back(case_of(shaped(GroupedGemmInputGradient{.shape = grouped, .through_gelu = flag}, dtype), shape));
    cases.push_back(case_of(shaped(GroupedGemmWeightGradient{.shape = grouped, .with_bias = flag}, dtype), shape));
  }
}

}  // namespace

KernelCase case_of(const GroupedGemmForward& args, std::string shape) {
  const std::int64_t inputs = args.shape.inputs;
  return make_shaped_case(args, product_facts(std::move(shape), args.x.dtype, {{"y", inputs}, {"pre", inputs}}));
}

KernelCase case_of(const GroupedGemmInputGradient& args, std::string shape) {
  const std::int64_t outputs = args.shape.outputs + (args.through_gelu ? kGeluTerms : 0);
  return make_shaped_case(args, product_facts(std::move(shape), args.dy.dtype, {{"dx", outputs}}));
}

KernelCase case_of(const GroupedGemmWeightGradient& args, std::string shape) {
  std::map<std::string, std::int64_t> terms;
  for (std::size_t g = 0; g < args.shape.groups(); ++g) {
    terms["dw" + std::to_string(g)] = terms["dbias" + std::to_string(g)] =
        std::max<std::int64_t>(1, args.shape.rows[g]);
  }
  return make_shaped_case(args, product_facts(std::move(shape), args.x.dtype, std::move(terms)));
}

std::vector<KernelCase> moe_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (const Mixture& m : {Mixture{1, 1, 1, 1}, {17, 8, 2, 33}, {200, 33, 3, 64, 9}, {131, 64, 8, 127, 20}}) {
      add_router(cases, m, dtype);
      add_rows(cases, m, dtype);
    }
  }
  for (core::DType dtype : kActivationDTypes) {
    add_limited_router(cases, {.tokens = 33, .experts = 24, .top_k = 3, .groups = 6, .limit = 2}, dtype);
    add_limited_router(cases, deepseek_router(60), dtype);
  }
  // The products themselves are gemm's, whose cases have all dtypes.
  for (core::DType dtype : kBenchDTypes) {
    add_products(cases, {5, 0, 33, 1}, 17, 9, "ragged", dtype);
    add_products(cases, GroupRows(6, 40), 33, 70, "equal", dtype);
    add_products(cases, GroupRows(4, 64), 128, 128, "E4_N64_C128_O128", dtype);  // whole tiles
  }
  for (const Mixture& m : {Mixture{1, 1, 1, 0}, {17, 8, 2, 0}, {300, 33, 3, 0, 9}, {700, 4, 2, 0, 400}}) {
    add_assignment(cases, m);
  }
  return cases;
}

// Layers of 1024 tokens (the mini-trainer's small model) and of 4096 tokens with many small experts.
std::vector<KernelCase> moe_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Mixture& m : {Mixture{1024, 8, 2, 256}, {4096, 64, 6, 1024}}) {
      add_router(cases, m, dtype);
      add_rows(cases, m, dtype);
    }
    add_limited_router(cases, deepseek_router(4096), dtype);
    const GroupRows skewed{1024, 256, 192, 160, 160, 128, 64, 64};
    for (const auto& [shape, name] : {std::pair{GroupedShape{GroupRows(8, 256), 256, 1024}, "E8_N256_C256_O1024"},
                                      {GroupedShape{skewed, 256, 1024}, "E8_N2048_skewed_C256_O1024"},
                                      {GroupedShape{GroupRows(8, 512), 1024, 4096}, "E8_N512_C1024_O4096"}}) {
      cases.push_back(case_of(shaped(GroupedGemmForward{.shape = shape}, dtype), name));
      cases.push_back(case_of(shaped(GroupedGemmInputGradient{.shape = shape}, dtype), name));
      cases.push_back(case_of(shaped(GroupedGemmWeightGradient{.shape = shape}, dtype), name));
    }
  }
  add_assignment(cases, {1024, 8, 2, 256});
  add_assignment(cases, {4096, 64, 6, 1024});
  return cases;
}

}  // namespace lockstep::kernels
