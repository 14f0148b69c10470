#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "schedules/passes/recipe.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/model/pieces.h"

namespace lockstep::trainer {
namespace {

using schedules::Comm;
using schedules::Op;
using schedules::Piece;

GptShape shape_of(std::int32_t ranks, bool sequence_parallel, Recompute recompute = Recompute::none) {
  return {.config = {.name = "test", .layers = 4, .hidden = 16, .heads = 4, .vocabulary = 61, .length = 8},
          .tensor = {ranks, 0},
          .sequence_parallel = sequence_parallel,
          .batch = 2,
          .length = 8,
          .compute = core::DType::bf16,
          .recompute = recompute};
}

StagePlace whole(const GptShape& shape) {
  return place_of(shape.config, 1, 0);
}
// Layers alone.
StagePlace middle(const GptShape& shape) {
  return place_of(shape.config, 4, 1);
}

// Payload bytes of each kind of collective in lists.
std::map<Comm, std::int64_t> payload(const std::vector<const std::vector<Piece>*>& lists) {
  std::map<Comm, std::int64_t> bytes;
  for (const std::vector<Piece>* list : lists) {
    for (const Piece& piece : *list) {
      if (piece.comm != Comm::none) bytes[piece.comm] += piece.amount;
    }
  }
  return bytes;
}

std::vector<What> kernels_of(const std::vector<Piece>& pieces, std::int32_t part) {
  std::vector<What> kernels;
  for (const Piece& piece : pieces) {
    if (piece.comm == Comm::none && piece.part == part) kernels.push_back(static_cast<What>(piece.what));
  }
  return kernels;
}

constexpr std::int64_t kRowsBytes = std::int64_t{2} * 8 * 16 * 2;  // b s h in bf16

TEST(Recipe, OneTensorRankExchangesNothing) {
  for (bool sequence_parallel : {false, true}) {
    const GptShape shape = shape_of(1, sequence_parallel, Recompute::full);
    const auto recipe = recipe_of(shape, whole(shape));
    EXPECT_TRUE(payload({&recipe.forward, &recipe.backward, &recipe.input_gradient, &recipe.weight_gradient}).empty());
  }
}

// Megatron: 4 all-reduces of b s h a layer, 2 forward and 2 backward (8 bsh (t-1)/t elements sent).
TEST(Recipe, ALayerHasFourAllReduces) {
  const GptShape shape = shape_of(4, false);
  const auto recipe = recipe_of(shape, middle(shape));
  const std::map<Comm, std::int64_t> expected{{Comm::all_reduce, 4 * kRowsBytes}};
  EXPECT_EQ(payload({&recipe.forward, &recipe.backward}), expected);
  EXPECT_EQ(payload({&recipe.forward, &recipe.input_gradient, &recipe.weight_gradient}), expected);
}

// arXiv:2205.05198, section 4.2.2: as many bytes as gathers and scatters, and norms' outputs gathered again.
TEST(Recipe, SequenceParallelLayersGatherAndScatter) {
  const GptShape shape = shape_of(4, true);
  const auto recipe = recipe_of(shape, middle(shape));
  const std::map<Comm, std::int64_t> expected{{Comm::all_gather, (4 + 2) * kRowsBytes},
                                              {Comm::reduce_scatter, 4 * kRowsBytes}};
  EXPECT_EQ(payload({&recipe.forward, &recipe.backward}), expected);
  EXPECT_EQ(payload({&recipe.forward, &recipe.input_gradient, &recipe.weight_gradient}), expected);
}

TEST(Recipe, FullRecomputationRepeatsAllButWhatOnlyLeadsToTheOutput) {
  const GptShape shape = shape_of(4, false, Recompute::full);
  const auto recipe = recipe_of(shape, middle(shape));
  EXPECT_EQ(payload({&recipe.backward})[Comm::all_reduce], 3 * kRowsBytes);
  std::vector<What> repeated;
  for (const Piece& piece : recipe.backward) {
    if (piece.op == Op::recompute) repeated.push_back(static_cast<What>(piece.what));
  }
  EXPECT_EQ(repeated,
            (std::vector<What>{What::attention_in, What::qkv, What::core, What::project, What::mlp_in, What::mlp_up}));
}

TEST(Recipe, SelectiveRecomputationRepeatsTheCoreOfEachLayer) {
  const GptShape shape = shape_of(1, false, Recompute::selective);
  const auto recipe = recipe_of(shape, whole(shape));
  for (const auto* list : {&recipe.backward, &recipe.input_gradient}) {
    std::int64_t repeated = 0;
    for (const Piece& piece : *list) {
      if (piece.op != Op::recompute) continue;
      EXPECT_EQ(static_cast<What>(piece.what), What::core);
      ++repeated;
    }
    EXPECT_EQ(repeated, shape.config.layers);
  }
}

// The loss exchanges three floats a token, not logits.
TEST(Recipe, TheHeadGathersThreeFloatsAToken) {
  const GptShape shape = shape_of(4, false);
  const auto recipe = recipe_of(shape, place_of(shape.config, 4, 3));
  EXPECT_EQ(payload({&recipe.forward})[Comm::all_gather], 4 * shape.rows() * 3 * 4);
}

// Reductions leave behind the last kernel of a part: it has to complete all gradients, the norm's among them.
TEST(Recipe, TheLastKernelOfAPartCompletesItsGradients) {
  for (bool sequence_parallel : {false, true}) {
    const GptShape shape = shape_of(2, sequence_parallel);
    const StagePlace place = whole(shape);
    const auto recipe = recipe_of(shape, place);
    for (std::int32_t part = 0; part < place.num_parts(); ++part) {
      What full = What::attention_in_backward;
      What split = What::attention_weight_gradient;
      if (part == 0) full = split = What::embedding_weight_gradient;
      if (part == place.num_parts() - 1) {
        full = What::head_in_backward;
        split = What::head_weight_gradient;
      }
      EXPECT_EQ(kernels_of(recipe.backward, part).back(), full);
      EXPECT_EQ(kernels_of(recipe.weight_gradient, part).back(), split);
    }
  }
}

TEST(Recipe, SplitListsHaveTheKernelsOfTheFullBackward) {
  const GptShape shape = shape_of(2, true);
  const StagePlace place = whole(shape);
  const auto recipe = recipe_of(shape, place);
  for (std::int32_t part = 0; part < place.num_parts(); ++part) {
    std::vector<What> together = kernels_of(recipe.backward, part);
    std::vector<What> split = kernels_of(recipe.input_gradient, part);
    for (What what : kernels_of(recipe.weight_gradient, part)) split.push_back(what);
    std::sort(together.begin(), together.end());
    std::sort(split.begin(), split.end());
    EXPECT_EQ(together, split);
  }
  for (const Piece& piece : recipe.backward) EXPECT_TRUE(piece.comm != Comm::none || piece.op == Op::backward);
  for (const Piece& piece : recipe.weight_gradient) {
    EXPECT_TRUE(piece.comm != Comm::none || piece.op == Op::weight_gradient);
  }
}

// A collective beside a kernel needs a kernel to be beside, and one that waits for it, in the same list.
TEST(Recipe, NoListEndsBesideSomething) {
  for (bool sequence_parallel : {false, true}) {
    for (Recompute recompute : {Recompute::none, Recompute::full}) {
      const GptShape shape = shape_of(2, sequence_parallel, recompute);
      const auto recipe = recipe_of(shape, whole(shape));
      for (const auto* list : {&recipe.forward, &recipe.backward, &recipe.input_gradient, &recipe.weight_gradient}) {
        ASSERT_GE(list->size(), 2U);
        EXPECT_FALSE(list->back().beside_next || (list->end() - 2)->beside_next);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer
