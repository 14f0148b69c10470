// Tensor-parallel layers of a transformer: linear layers in 16-bit and 8-bit floats, norms, attention, MLP, vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/collective.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/rotary/rotary.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// Resources of a layer: the rank's memory and the context of its kernels.

struct Workspace {
  Memory& memory;
  const kernels::Context& where;
};

// The data of one rank that a collective between two pieces of a layer moves. Views are empty on a rank that has
// nothing to send, or to receive.
struct Exchange {
  kernels::In input = {};
  kernels::Out output = {};
  // Between each pair of ranks, where blocks have different sizes: bytes of a shift, elements of an all-to-all.
  std::shared_ptr<const collectives::CountMatrix> matrix = nullptr;
  int root = 0;  // the member that has, or gets, the data of a broadcast or a reduction
};

// The three products of a linear layer in 8-bit floats: factors are encoded when a product needs them, and codes are
// freed after it.

// Numbers per linear layer for delayed scaling: the largest elements of x, of w and of dy.
inline constexpr std::int64_t kFp8Tensors = 3;

struct Fp8Scaling {
  std::optional<kernels::Fp8Recipe> recipe = {};
  // With delayed scaling: kFp8Tensors numbers per linear layer of a block, f32.
  kernels::In previous = {};
  kernels::InOut raised = {};

  Fp8Scaling of_linear(std::int64_t index) const;
};

struct Fp8Products {
  kernels::Fp8Linear linear;
  Fp8Scaling scaling;  // scaling of this layer only

  // y = x w^T + bias
  void forward(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x, kernels::Out y) const;
  void input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::Out dx) const;
  // Adds to the gradients.
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, kernels::InOut dw,
                       kernels::InOut dbias) const;
};

// A tile of a layer's rows, one of several of equal height; by default all rows.
struct RowTile {
  std::int64_t number = 0;
  std::int64_t tiles = 1;

  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == tiles; }
  // Its rows of a matrix that has all rows.
  template <class View>
  View of(const View& all) const {
    const std::int64_t elems = all.elems / tiles;
    auto* const rows = all.template as<std::byte>() + kernels::size_bytes(all.dtype, number * elems);
    return {rows, all.dtype, elems};
  }
};

// A linear layer, or one tensor-parallel rank's part of it: the local product is the same for both splits of Shoeybi et
// al. 2019 (arXiv:1909.08053, section 3).
//   column-parallel   a share of the outputs and of the bias; takes whole inputs of all rows
//   row-parallel      a share of the inputs; its outputs are terms of a sum over the ranks, and one rank adds the bias
// Ranks communicate between layers, not within them; the callers of these functions do so.

struct LinearWeights {
  kernels::In weight;     // [outputs, inputs]
  kernels::In bias = {};  // [outputs]; empty if another rank adds it
};

// f32; layers add to them.
struct LinearGradients {
  kernels::InOut weight;
  kernels::InOut bias = {};
};

// A rank's share of the layer; rows are tokens.
struct Linear {
  kernels::GemmShape shape;
  Fp8Scaling fp8 = {};

  Linear of_tile(const RowTile& tile) const { return {{shape.rows / tile.tiles, shape.inputs, shape.outputs}, fp8}; }
  // y[rows, outputs]
  void forward(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out y) const {
    if (fp8.recipe) return fp8_products().forward(workspace, weights.weight, weights.bias, x, y);
    const auto epilogue = weights.bias.given() ? kernels::Epilogue::bias : kernels::Epilogue::none;
    kernels::run(
        kernels::GemmForward{
            .shape = shape, .epilogue = epilogue, .x = x, .w = weights.weight, .bias = weights.bias, .y = y},
        workspace.where);
  }
  // y = GELU(pre). Not available with 8-bit floats, whose products have no fused GELU.
  void forward_gelu(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out pre,
                    kernels::Out y) const {
    kernels::run(kernels::GemmForward{.shape = shape,
                                      .epilogue = kernels::Epilogue::bias_gelu,
                                      .x = x,
                                      .w = weights.weight,
                                      .bias = weights.bias,
                                      .pre = pre,
                                      .y = y},
                 workspace.where);
  }
  // dx[rows, inputs]; column-parallel: a term of a sum over the ranks
  void input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::Out dx) const {
    if (fp8.recipe) return fp8_products().input_gradient(workspace, weight, dy, dx);
    kernels::run(kernels::GemmInputGradient{.shape = shape, .dy = dy, .w = weight, .dx = dx}, workspace.where);
  }
  // Gradient of `pre`, where x = GELU(pre).
  void input_gradient_through_gelu(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::In pre,
                                   kernels::Out d_pre) const {
    kernels::run(
        kernels::GemmInputGradient{
            .shape = shape, .through_gelu = true, .dy = dy, .w = weight, .pre = pre, .dx = d_pre},
        workspace.where);
  }
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, const LinearGradients& into) const {
    if (fp8.recipe) return fp8_products().weight_gradient(workspace, x, dy, into.weight, into.bias);
    kernels::run(
        kernels::GemmWeightGradient{
            .shape = shape, .with_bias = into.bias.given(), .x = x, .dy = dy, .dw = into.weight, .dbias = into.bias},
        workspace.where);
  }

 private:
  Fp8Products fp8_products() const { return {{shape, *fp8.recipe}, fp8}; }
};

// LayerNorm or RMSNorm before a block, alone or with the preceding residual addition. Sequence-parallel ranks have a
// share of the rows each (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2): gradients of gamma and beta are
// then terms of a sum over them.

struct NormWeights {
  kernels::In gamma;      // [columns]
  kernels::In beta = {};  // [columns], LayerNorm only
};

// f32; layers add to them.
struct NormGradients {
  kernels::InOut gamma;
  kernels::InOut beta = {};  // LayerNorm only
};

// One f32 per row, kept for the backward.
struct NormSaved {
  Tensor mean;  // LayerNorm only
  Tensor rstd;

  void reset();
};

struct NormLayer {
  kernels::Norm norm;
  std::int64_t rows;
  std::int64_t columns;  // on this rank
  // Where `ranks` ranks have as many columns each, a norm runs in two parts: the sums that the first one makes,
  // [rows, kernels::sums_per_row] f32, are summed over these ranks before the second. The first part of a forward makes
  // `sum`, that of a backward the parameter gradients.
  kernels::NormPart part = kernels::NormPart::whole;
  std::int64_t ranks = 1;
  kernels::InOut sums = {};
  bool is_first() const { return part != kernels::NormPart::rest; }
  bool is_last() const { return part != kernels::NormPart::sums; }

  void forward(const Workspace& workspace, const NormWeights& weights, kernels::In x, NormSaved& saved,
               kernels::Out y) const;
  // sum = x + residual, y = norm(sum)
  void forward_of_sum(const Workspace& workspace, const NormWeights& weights, kernels::In x, kernels::In residual,
                      NormSaved& saved, kernels::Out sum, kernels::Out y) const;
  // dy becomes dx. `x` is the norm's input.
  void backward(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved, kernels::InOut dy,
                const NormGradients& into) const;
  // Likewise, plus the gradient that reaches x through the residual connection.
  void backward_with_residual(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved,
                              kernels::In past_norm, kernels::InOut dy, const NormGradients& into) const;
};

// Self-attention of one tensor-parallel rank: Q, K and V of its heads (column-parallel), their attention core,
// and its term of the projection (row-parallel). Shoeybi et al. 2019, arXiv:1909.08053, section 3.
//
//   x [rows, hidden] -> qkv [rows, heads + 2 kv_heads, head_columns] -> o [rows, heads, head_columns]
//     -> term of y [rows, hidden]
//
// Queries and keys may be rotated by their positions on the way (rotary), in place. Rows are tokens, sequence by
// sequence. The pieces are separate functions because memory may be freed between them, the core may be recomputed
// (arXiv:2205.05198, section 5), and weight gradients may come later than input gradients.

struct AttentionSaved {
  Tensor qkv;
  Tensor o;
  Tensor lse;  // f32
};

// An earlier slice of the same sequences (schedules/slices.h): queries attend to its keys, too.
struct EarlierSlice {
  std::int64_t length;
  Tensor* qkv;
  Tensor* d_qkv;  // the sum of later slices' gradients, 0 for its queries; empty before the first of them
};

struct AttentionLayer {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t hidden;
  std::int64_t heads;     // on this rank
  std::int64_t kv_heads;  // likewise
  std::int64_t head_columns;
  Fp8Scaling fp8 = {};
  std::span<const EarlierSlice> earlier = {};
  bool causal = true;

  std::int64_t rows() const { return batch * length; }
  std::int64_t own_columns() const { return heads * head_columns; }  // columns of queries and of o
  std::int64_t key_columns() const { return kv_heads * head_columns; }
  std::int64_t qkv_columns() const { return own_columns() + 2 * key_columns(); }

  // Matrices have all rows, of which a product reads and writes those of a tile; the first one makes its output.
  void qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x, AttentionSaved& saved,
           const RowTile& tile = {}) const;
  // Rotates the queries and keys of qkv, or rotates gradients back (`how.backward`), by the angles of `how`.
  // `first_positions`: first position of each run of consecutive tokens; runs have equal length.
  void rotate(const Workspace& workspace, kernels::Rotary how, const Tensor& qkv,
              const std::vector<std::int64_t>& first_positions = {0}) const;
  void core(const Workspace& workspace, AttentionSaved& saved) const;
  // Computes the gradient of the core's output from dy. `earlier_tiles`: the result of the tile before.
  Tensor projection_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, const RowTile& tile = {},
                             Tensor earlier_tiles = {}) const;
  // Computes the gradient of qkv from the gradient of the core's output, and adds to earlier slices' gradients. `sum`:
  // what later slices have added to this one's (EarlierSlice::d_qkv).
  Tensor core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o, Tensor sum = {}) const;

  Linear of_qkv() const { return {{rows(), hidden, qkv_columns()}, fp8.of_linear(0)}; }
  Linear of_projection() const { return {{rows(), own_columns(), hidden}, fp8.of_linear(1)}; }

 private:
  // Attention to the slice's own keys, or to all keys of an earlier slice.
  kernels::AttentionShape shape() const;
  kernels::AttentionShape shape_over(const EarlierSlice& slice) const;
  void attend(const Workspace& workspace, const kernels::AttentionShape& shape, const Tensor& queries,
              const Tensor& keys, Tensor& o, Tensor& lse) const;
  void attend_backward(const Workspace& workspace, const kernels::AttentionShape& shape, const AttentionSaved& saved,
                       kernels::In d_o, const Tensor& keys, const Tensor& d_queries, const Tensor& d_keys) const;
};

// The MLP of one tensor-parallel rank: y = activation(x w1^T + b1) w2^T + b2. The first product is column-parallel
// (SwiGLU's gate and up in one product), the second row-parallel, so that ranks do not communicate between them
// (Shoeybi et al. 2019, section 3).

enum class Activation : std::uint8_t {
  gelu_in_products,  // fused with the bias into the product before it, and into the gradient of the product after it
  gelu,              // a kernel of its own
  swiglu,            // a kernel of its own; `pre` has the gate's columns and then up's
};

struct MlpSaved {
  Tensor pre;  // before the activation
  Tensor act;  // after the activation
};

struct MlpLayer {
  std::int64_t rows;
  std::int64_t hidden;
  std::int64_t inner;                                    // on this rank
  Activation activation = Activation::gelu_in_products;  // a kernel of its own with 8-bit floats
  Fp8Scaling fp8 = {};

  bool in_products() const { return activation == Activation::gelu_in_products; }
  std::int64_t pre_columns() const { return activation == Activation::swiglu ? 2 * inner : inner; }

  Linear of_up() const { return {{rows, hidden, pre_columns()}, fp8.of_linear(2)}; }
  Linear of_down() const { return {{rows, inner, hidden}, fp8.of_linear(3)}; }

  // Computes `pre`, and `act` if the activation is fused into products. Tiles: see AttentionLayer.
  void up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved,
          const RowTile& tile = {}) const;
  // Computes the gradient of `pre` from dy, or of `act` if the activation is a kernel of its own.
  Tensor down_gradient(const Workspace& workspace, kernels::In weight, const MlpSaved& saved, kernels::In dy,
                       const RowTile& tile = {}, Tensor earlier_tiles = {}) const;

  // ---- if the activation is a kernel of its own
  void activate(const Workspace& workspace, MlpSaved& saved) const;
  // Computes the gradient of `pre` from d_act; with SwiGLU it reuses the memory of `pre`.
  Tensor activation_gradient(const Workspace& workspace, MlpSaved& saved, kernels::In d_act) const;

 private:
  Tensor make(const Workspace& workspace, core::DType dtype, std::int64_t columns) const {
    return workspace.memory.make(MemoryKind::activations, dtype, rows * columns);
  }
};

// A vocabulary split over tensor-parallel ranks: embedding, head and cross-entropy (Shoeybi et al. 2019,
// arXiv:1909.08053, section 3).

// A rank's words. All ranks' tables have the same number of rows; the last rows of the last ranks may be padding.
struct Words {
  std::int64_t rows;   // rows of the table
  std::int64_t valid;  // rows that correspond to a word: the first ones
  std::int64_t first;  // word of row 0
};
// Words of rank `index`, with `rows` rows per rank.
Words words_of(std::int64_t vocabulary, std::int64_t rows, std::int64_t index);

// y [tokens, hidden] = table[ids] + positions, for the words and positions on this rank: a term of a sum over ranks.
// One rank adds the positions; every rank computes their gradient from the whole dy.
struct EmbeddingLayer {
  std::int64_t tokens;
  std::int64_t length;  // tokens per sequence; 0: there are no learned positions
  std::int64_t hidden;
  Words words;

  // `positions`: [length, hidden]; empty if another rank adds them or there are none.
  void forward(const Workspace& workspace, kernels::In ids, kernels::In table, kernels::In positions,
               kernels::Out y) const;
  // f32; adds to the gradients.
  void backward(const Workspace& workspace, kernels::In ids, kernels::In dy, kernels::InOut d_table,
                kernels::InOut d_positions) const;
};

// Logits of a rank's words, and the loss over all words, for which ranks gather three floats per token (stats) instead
// of logits. A single rank needs no stats.
struct HeadLayer {
  std::int64_t rows;
  std::int64_t hidden;
  Words words;
  std::int64_t shards;  // tensor-parallel ranks

  std::int64_t stats_elems() const { return rows * 3; }  // per rank

  void logits(const Workspace& workspace, kernels::In table, kernels::In x, kernels::Out y) const;
  void stats(const Workspace& workspace, kernels::In targets, kernels::In logits, kernels::Out of_rank) const;
  // Replaces logits by their gradient times `scale`; losses [rows] f32. `all_stats` [shards, rows, 3] if there are
  // several shards.
  void loss(const Workspace& workspace, kernels::In targets, kernels::In all_stats, float scale, kernels::InOut logits,
            kernels::Out losses) const;
  // dx: a term of a sum over ranks.
  void input_gradient(const Workspace& workspace, kernels::In table, kernels::In d_logits, kernels::Out dx) const;
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits, kernels::InOut d_table) const;

 private:
  Linear of_table() const { return {{rows, hidden, words.rows}}; }
};

}  // namespace lockstep::parallel
