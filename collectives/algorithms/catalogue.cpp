// The list of all algorithms, and the way from a user's text ("ring:lanes=4") to a plan.
#include <fmt/format.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/building_blocks.h"
#include "core/error.h"
#include "core/options.h"

namespace lockstep::algorithms {

// ---- generators by source file: pure functions of the shape. They may assume at least two ranks (make_plan handles
// one rank) and integers that their `refuse` accepts.

// ring.cpp
Generator ring_all_reduce;
Generator ring_reduce_scatter;
Generator ring_all_gather;
Generator hierarchical_all_reduce;
Generator ring_2d_all_reduce;

// direct.cpp
Generator one_shot_all_reduce;
Generator two_shot_all_reduce;
Generator server_all_reduce;
Generator root_all_reduce;
Generator direct_reduce_scatter;
Generator direct_all_gather;
Generator direct_gather;
Generator direct_scatter;
Generator direct_send_recv;

// tree.cpp: broadcast, reduce or all-reduce
Generator double_tree;
Generator knomial_tree;
Generator binary_tree;
Generator chain;
Generator binomial_tree;
Generator star;

// recursive_doubling.cpp
Generator recursive_doubling_all_reduce;
Generator halving_doubling_all_reduce;
Generator recursive_halving_reduce_scatter;
Generator recursive_doubling;  // all-gather or hypercube

// bruck.cpp
Generator bruck_all_reduce;
Generator bruck_reduce_scatter;
Generator bruck_all_gather;

// pat.cpp
Generator pat_reduce_scatter;
Generator pat_all_gather;

// all_to_all.cpp
Generator pairwise_all_to_all;  // also all_to_all_v
Generator direct_all_to_all;    // also all_to_all_v
Generator bruck_all_to_all;
Generator hierarchical_all_to_all;

// gather_tree.cpp
Generator scatter_allgather_broadcast;
Generator reduce_scatter_gather_reduce;
Generator binomial_gather;
Generator binomial_scatter;

// ---- the list

namespace {

using collectives::Kind;
using Refusal = std::optional<std::string>;

Refusal any(const Shape& /*shape*/) {
  return std::nullopt;
}
Refusal any_divisor_as_group(const Shape& shape) {
  return refuse_non_divisor(shape, "group");
}
Refusal any_divisor_as_columns(const Shape& shape) {
  return refuse_non_divisor(shape, "columns");
}
Refusal powers_of_two(const Shape& shape) {
  if (is_power_of_two(shape.num_ranks)) return std::nullopt;
  return fmt::format("needs a power of two ranks, not {}; nearest: {} or {}", shape.num_ranks,
                     floor_power_of_two(shape.num_ranks), ceil_power_of_two(shape.num_ranks));
}
Refusal as_many_servers(const Shape& shape) {
  const int servers = shape.option("servers");
  if (servers <= shape.num_ranks) return std::nullopt;
  return fmt::format("has {} servers, more than {} ranks; possible: 1 to {}", servers, shape.num_ranks,
                     shape.num_ranks);
}

constexpr int kMostRanks = 1 << 20;  // upper bound of options that count ranks
constexpr int kMostChunks = 1 << 10;

using OptionList = std::vector<Option>;
OptionList none() {
  return {};
}
OptionList chunks(int default_value) {
  return {{"chunks", default_value, 1, kMostChunks, "parts that are pipelined through the tree"}};
}
// Radix p and above is the flat tree: the fewest sequential messages.
OptionList tree_options() {
  return {{"radix", 2, 2, kMostRanks, "2: binomial", {4, 8}}, chunks(1).front()};
}
OptionList ring_options() {
  return {{"directions", 1, 1, 2, "2: half of the data travels backwards"},
          {"lanes", 1, 1, 8, "concurrent rings in each direction", {2}}};
}
OptionList group_option() {
  return {{"group", 0, 0, kMostRanks, "ranks per group; 0: near the square root"}};
}
OptionList columns_option() {
  return {{"columns", 0, 0, kMostRanks, "columns of the grid; 0: near the square root"}};
}
OptionList server_options() {
  return {{"servers", 1, 1, kMostRanks, "ranks that each sum a part of the vector"},
          {"last", 0, 0, 1, "0: servers are spread over the ranks; 1: they are the last ranks"}};
}
OptionList pat_options() {
  return {{"aggregation", 0, 0, kMostRanks, "most blocks per message, rounded down to a power of two; 0: no limit"}};
}

constexpr const char* kPatarasuk = "Patarasuk, Yuan 2009, J. Parallel Distrib. Comput. 69, sections 3-4";
constexpr const char* kSanders = "Sanders, Speck, Traff 2009, Parallel Computing 35; NCCL 2.4 blog (2019)";
constexpr const char* kTraff = "Traff, Ripke 2005, Optimal broadcast for fully connected networks, HPCC";
constexpr const char* kThakur = "Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19, section 4";
constexpr const char* kRabenseifner = "Rabenseifner 2004, ICCS, section 4; MPICH";
constexpr const char* kBruck = "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, IEEE TPDS 8";
constexpr const char* kPat = "Jeaugey 2025, arXiv:2506.20252";
constexpr const char* kTwoLevel = "NCCL 2.4 blog (2019); Ying et al. 2018, Image classification at supercomputer scale";
constexpr const char* kVllm = "vLLM csrc/custom_all_reduce.cuh";
constexpr const char* kServer = "Li et al. 2014, parameter server, OSDI; Jiang et al. 2020, BytePS, OSDI, section 3";
constexpr const char* kDefinition = "collectives/collective.h: the definition, literally";
constexpr const char* kMpichTree = "MPICH bcast_intra_tree.c, bcast_intra_binomial.c";

std::vector<Algorithm> all_reduces() {
  const Kind kind = Kind::all_reduce;
  return {
      {kind, "ring", "pieces go around the ring twice: summed, then distributed", kPatarasuk, ring_options(), any,
       ring_all_reduce},
      {kind, "double_tree", "two binary trees, each rank inner in one at most, half of the data each", kSanders,
       chunks(8), any, double_tree},
      {kind, "binary_tree", "up and down one binary tree, pipelined", kTraff, chunks(8), any, binary_tree},
      {kind, "tree", "up and down a k-nomial tree", kMpichTree, tree_options(), any, knomial_tree},
      {kind, "recursive_doubling", "whole vectors exchanged with the rank that differs in one bit", kThakur, none(),
       any, recursive_doubling_all_reduce},
      {kind, "halving_doubling", "half-vectors exchanged and summed, then gathered back", kRabenseifner, none(), any,
       halving_doubling_all_reduce},
      {kind, "bruck", "all inputs gathered in lg p steps, summed by every rank", kBruck, none(), any, bruck_all_reduce},
      {kind, "one_shot", "every rank reads all vectors", kVllm, none(), any, one_shot_all_reduce},
      {kind, "two_shot", "every rank sums one piece, then reads the others' sums", kVllm, none(), any,
       two_shot_all_reduce},
      {kind, "server", "parts pushed to servers, summed there, and pulled", kServer, server_options(), as_many_servers,
       server_all_reduce},
      {kind, "root", "all through rank 0, as DataParallel does it", "torch.nn.DataParallel", none(), any,
       root_all_reduce},
      {kind, "hierarchical", "rings inside groups, and between them", kTwoLevel, group_option(), any_divisor_as_group,
       hierarchical_all_reduce},
      {kind, "ring_2d", "rings along rows and columns, half of the data in each order", kTwoLevel, columns_option(),
       any_divisor_as_columns, ring_2d_all_reduce},
  };
}

std::vector<Algorithm> reduce_scatters() {
  const Kind kind = Kind::reduce_scatter;
  return {
      {kind, "ring", "each block collects its sum on the way around", kPatarasuk, ring_options(), any,
       ring_reduce_scatter},
      {kind, "recursive_halving", "half of the blocks exchanged, far ranks first", kThakur, none(), any,
       recursive_halving_reduce_scatter},
      {kind, "bruck", "Bruck's all-gather backwards", kBruck, none(), any, bruck_reduce_scatter},
      {kind, "pat", "a binomial tree for each block, messages shared between trees", kPat, pat_options(), any,
       pat_reduce_scatter},
      {kind, "direct", "every rank reads its block from all others", kVllm, none(), any, direct_reduce_scatter},
  };
}

std::vector<Algorithm> all_gathers() {
  const Kind kind = Kind::all_gather;
  return {
      {kind, "ring", "each block goes around", kPatarasuk, ring_options(), any, ring_all_gather},
      {kind, "recursive_doubling", "all blocks so far exchanged with the rank that differs in one bit", kThakur, none(),
       any, recursive_doubling},
      {kind, "bruck", "all blocks so far sent 1, 2, 4, ... ranks away", kBruck, none(), any, bruck_all_gather},
      {kind, "pat", "a binomial tree for each block, messages shared between trees", kPat, pat_options(), any,
       pat_all_gather},
      {kind, "direct", "every rank sends its block to all others", kDefinition, none(), any, direct_all_gather},
  };
}

std::vector<Algorithm> broadcasts() {
  const Kind kind = Kind::broadcast;
  return {
      {kind, "chain", "from rank to rank, pipelined", kTraff, chunks(8), any, chain},
      {kind, "double_tree", "two binary trees below the root, half of the data each", kSanders, chunks(8), any,
       double_tree},
      {kind, "binary_tree", "down one binary tree, pipelined", kTraff, chunks(8), any, binary_tree},
      {kind, "binomial", "in every step, each rank that has the data sends it on", kMpichTree, none(), any,
       binomial_tree},
      {kind, "scatter_allgather", "binomial scatter, then ring all-gather", kThakur, none(), any,
       scatter_allgather_broadcast},
      {kind, "direct", "root sends to every rank", kDefinition, none(), any, star},
  };
}

std::vector<Algorithm> reduces() {
  const Kind kind = Kind::reduce;
  return {
      {kind, "chain", "from rank to rank, pipelined", kTraff, chunks(8), any, chain},
      {kind, "double_tree", "two binary trees below the root, half of the data each", kSanders, chunks(8), any,
       double_tree},
      {kind, "binary_tree", "up one binary tree, pipelined", kTraff, chunks(8), any, binary_tree},
      {kind, "binomial", "in every step half of the ranks send their sums on", kMpichTree, none(), any, binomial_tree},
      {kind, "reduce_scatter_gather", "ring reduce-scatter, then binomial gather", kThakur, none(), any,
       reduce_scatter_gather_reduce},
      {kind, "direct", "root reads every rank's vector", kDefinition, none(), any, star},
  };
}

std::vector<Algorithm> others() {
  return {
      {Kind::all_to_all, "pairwise", "in step i with ranks +i and -i", kThakur, none(), any, pairwise_all_to_all},
      {Kind::all_to_all, "bruck", "blocks travel along the bits of their distance, packed", kBruck, none(), any,
       bruck_all_to_all},
      {Kind::all_to_all, "hierarchical", "between groups first, then inside",
       "Traff, Rougier 2014, EuroMPI; NCCL 2.12 blog (PXN)", group_option(), any_divisor_as_group,
       hierarchical_all_to_all},
      {Kind::all_to_all, "direct", "all sends at once", kDefinition, none(), any, direct_all_to_all},
      {Kind::all_to_all_v, "pairwise", "in step i with ranks +i and -i", kThakur, none(), any, pairwise_all_to_all},
      {Kind::all_to_all_v, "direct", "all sends at once", kDefinition, none(), any, direct_all_to_all},
      {Kind::gather, "binomial", "subtrees' blocks go up together", kThakur, none(), any, binomial_gather},
      {Kind::gather, "direct", "every rank sends to the root", kDefinition, none(), any, direct_gather},
      {Kind::scatter, "binomial", "subtrees' blocks go down together", kThakur, none(), any, binomial_scatter},
      {Kind::scatter, "direct", "root sends to every rank", kDefinition, none(), any, direct_scatter},
      {Kind::send_recv, "direct", "each rank to the next, around the ring", kDefinition, none(), any, direct_send_recv},
      {Kind::hypercube, "exchange", "all blocks so far exchanged along each dimension", "nccl-tests hypercube.cu",
       none(), powers_of_two, recursive_doubling},
  };
}

std::vector<Algorithm> make_catalogue() {
  std::vector<Algorithm> all;
  for (const auto& part : {all_reduces(), reduce_scatters(), all_gathers(), broadcasts(), reduces(), others()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

std::span<const Algorithm> catalogue() {
  static const std::vector<Algorithm> all = make_catalogue();
  return all;
}

namespace {

using OptionValues = std::map<std::string, int, std::less<>>;

const Option* find_option(const Algorithm& algorithm, std::string_view name) {
  for (const Option& option : algorithm.options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string options_help(const Algorithm& algorithm) {
  if (algorithm.options.empty()) return fmt::format("{} has no options", algorithm.name);
  std::string help = fmt::format("options of {}:", algorithm.name);
  for (const Option& o : algorithm.options) help += fmt::format(" {}={}..{}", o.name, o.min_value, o.max_value);
  return help;
}

const Algorithm& find_algorithm(collectives::Kind kind, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms_of(kind)) {
    if (algorithm->name == name) return *algorithm;
    names.emplace_back(algorithm->name);
  }
  throw core::unknown_name(fmt::format("--algo: {} has no algorithm '{}'", collectives::name_of(kind), name), name,
                           names);
}

void set_option(const Algorithm& algorithm, std::string_view part, OptionValues& options) {
  const auto [name, digits, has_value] = core::name_and_value(part);
  const Option* option = has_value ? find_option(algorithm, name) : nullptr;
  if (option == nullptr) {
    throw core::usage_error(
        fmt::format("--algo: '{}' is not an option of {}; {}", part, algorithm.name, options_help(algorithm)));
  }
  const core::OptionText text{fmt::format("--algo: {}:{}", algorithm.name, option->name), std::string(digits), '='};
  const auto value = core::parse_number<int>(digits);
  if (!value || *value < option->min_value || *value > option->max_value) {
    throw text.refused("out of range",
                       fmt::format("{} to {} ({})", option->min_value, option->max_value, option->meaning));
  }
  if (!options.emplace(option->name, *value).second) {
    throw core::usage_error(fmt::format("--algo: {}: {} is given twice", algorithm.name, option->name));
  }
}

}  // namespace

int Shape::option(std::string_view name) const {
  const auto found = options.find(name);
  LOCKSTEP_CHECK(found != options.end(), fmt::format("option '{}' is not declared in the catalogue", name));
  return found->second;
}

std::vector<const Algorithm*> algorithms_of(collectives::Kind kind) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : catalogue()) {
    if (algorithm.kind == kind) found.push_back(&algorithm);
  }
  return found;
}

std::string Choice::label() const {
  std::string label(algorithm->name);
  for (const Option& option : algorithm->options) {
    const int value = options.find(option.name)->second;
    if (value != option.default_value) label += fmt::format(":{}={}", option.name, value);
  }
  return label;
}

Choice parse_choice(collectives::Kind kind, std::string_view text) {
  const std::vector<std::string_view> parts = core::split(text, ':');
  Choice choice{&find_algorithm(kind, parts.front()), {}};
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(*choice.algorithm, parts[i], choice.options);
  for (const Option& option : choice.algorithm->options) choice.options.emplace(option.name, option.default_value);
  return choice;
}

std::optional<std::string> refusal(const Choice& choice, int num_ranks, int root) {
  return choice.algorithm->refuse(Shape{num_ranks, root, choice.options});
}

std::vector<std::string> tuned_variants(collectives::Kind kind) {
  std::vector<std::string> variants;
  for (const Algorithm* algorithm : algorithms_of(kind)) {
    for (const Option& option : algorithm->options) {
      for (int value : option.also_tuned)
        variants.push_back(fmt::format("{}:{}={}", algorithm->name, option.name, value));
    }
  }
  return variants;
}

plan::Plan make_plan(const Choice& choice, int num_ranks, int root) {
  LOCKSTEP_CHECK(num_ranks >= 1 && root >= 0 && root < num_ranks, fmt::format("root {} of {} ranks", root, num_ranks));
  if (const auto why = refusal(choice, num_ranks, root)) {
    throw core::usage_error(fmt::format("--algo {}: {}", choice.label(), *why));
  }
  const collectives::Kind kind = choice.algorithm->kind;
  plan::PlanBuilder builder(kind, num_ranks, collectives::has_root(kind) ? root : 0, 1);
  if (num_ranks == 1) {
    builder.copy(0, plan::output(0), plan::input(0));
  } else {
    choice.algorithm->generate(builder, Shape{num_ranks, root, choice.options});
  }
  return builder.finish(choice.label());
}

}  // namespace lockstep::algorithms
