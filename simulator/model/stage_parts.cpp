#include "simulator/model/stage_parts.h"

namespace lockstep::simulator {
namespace {

class Tensors {
 public:
  explicit Tensors(std::int32_t part) : part_(part) {}
  void add(std::int64_t elements, bool expert = false) {
    if (elements > 0) all_.push_back({part_, elements, expert});
  }
  void next_part() { ++part_; }
  std::vector<TensorParameters> take() { return std::move(all_); }

 private:
  std::int32_t part_;
  std::vector<TensorParameters> all_;
};

void add_norm(Tensors& to, const Model& model) {
  to.add(model.hidden);
  if (model.norm == Norm::layer) to.add(model.hidden);
}

// Cut by columns: its bias is cut, too. By rows: its bias is added after the sum.
void add_columns(Tensors& to, const Model& model, std::int64_t in, std::int64_t out, std::int64_t tp, bool expert) {
  to.add(in * out / tp, expert);
  if (model.biases) to.add(out / tp, expert);
}
void add_rows(Tensors& to, const Model& model, std::int64_t in, std::int64_t out, std::int64_t tp, bool expert) {
  to.add(in * out / tp, expert);
  if (model.biases) to.add(out, expert);
}

void add_layer(Tensors& to, const Model& model, const Layout& layout) {
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.kv_heads * model.head_size;
  const bool mixture = model.experts > 0;
  add_norm(to, model);
  add_columns(to, model, model.hidden, queries + 2 * keys, layout.tp, false);
  add_rows(to, model, queries, model.hidden, layout.tp, false);
  add_norm(to, model);
  to.add(model.hidden * model.experts);
  const std::int64_t here = mixture ? model.experts / layout.ep : 1;
  for (std::int64_t expert = 0; expert < here; ++expert) {
    add_columns(to, model, model.hidden, model.ffn_hidden * (model.gated ? 2 : 1), layout.tp, mixture);
    add_rows(to, model, model.ffn_hidden, model.hidden, layout.tp, mixture);
  }
  to.next_part();
}

}  // namespace

std::vector<TensorParameters> tensors_of(const Model& model, const Layout& layout, const StageSlice& slice) {
  Tensors tensors(0);
  const std::int64_t words = model.hidden * words_a_rank(model, layout);
  if (slice.embedding) {
    tensors.add(words);
    if (model.learned_positions) tensors.add(model.hidden * model.sequence);
    tensors.next_part();
  }
  for (std::int64_t layer = 0; layer < slice.layers; ++layer) add_layer(tensors, model, layout);
  if (slice.head) {
    add_norm(tensors, model);
    if (!model.tied_embeddings || !slice.embedding) tensors.add(words);  // a copy, if the embedding is elsewhere
  }
  return tensors.take();
}

std::int32_t num_parts(const StageSlice& slice) {
  return static_cast<std::int32_t>(slice.layers) + (slice.embedding ? 1 : 0) + (slice.head ? 1 : 0);
}

double shard_count(const Layout& layout, bool expert) {
  const double line = static_cast<double>(layout.dp) * layout.cp;
  if (expert) return line / layout.ep;
  return layout.shard_ranks == 0 ? line : layout.shard_ranks;
}

}  // namespace lockstep::simulator
