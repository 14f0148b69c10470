// A transformer's attention: Q, K and V of a rank's heads (column-parallel), their core, the projection (row-parallel).
#include <optional>

#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/row_order.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"
#include "parallel/layers/attention.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using workload::Split;

class AttentionBlock final : public Block {
 public:
  explicit AttentionBlock(const Place& place)
      : place_(place),
        entry_(place),
        exit_(place),
        qkv_(place, "qkv", 3 * place.shape.hidden, place.shape.hidden, Split::rows, 3),
        projection_(place, "projection", place.shape.hidden, place.shape.hidden, Split::columns) {
    saved_.qkv = place.make(place.shape.rows() * 3 * own());
    d_o_ = place.make(place.shape.rows() * own());
    if (reorders()) {
      order_.emplace(place.workspace, place.tiles());
      in_tiles_.qkv = place.make(saved_.qkv.elems());
      in_tiles_.o = place.make(d_o_.elems());
      in_tiles_.d_o = place.make(d_o_.elems());
      in_tiles_.d_qkv = place.make(saved_.qkv.elems());
    }
    add_forward();
    add_backward();
  }

  void reset() override {
    entry_.spoil();
    exit_.spoil();
    qkv_.reset();
    projection_.reset();
    for (const parallel::Tensor* one :
         {&saved_.qkv, &d_o_, &in_tiles_.qkv, &in_tiles_.o, &in_tiles_.d_o, &in_tiles_.d_qkv}) {
      if (one->given()) set_bytes(place_.workspace.memory, *one, 0xff);
    }
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{exit_.result(), entry_.result()};
    qkv_.add_results(all);
    projection_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.hidden / place_.sharing.ranks; }
  Linear of_qkv(std::int64_t rows) const { return {{rows, place_.shape.hidden, 3 * own()}}; }
  Linear of_projection(std::int64_t rows) const { return {{rows, own(), place_.shape.hidden}}; }
  parallel::AttentionLayer layer() const {
    const Shape& shape = place_.shape;
    return {shape.batch, shape.length, shape.hidden, shape.heads / place_.sharing.ranks, shape.hidden / shape.heads};
  }

  // The core goes through sequences: it needs their rows in their order.
  bool reorders() const { return place_.tiles().reorders(); }
  const parallel::Tensor& qkv() const { return reorders() ? in_tiles_.qkv : saved_.qkv; }
  const parallel::Tensor& o() const { return reorders() ? in_tiles_.o : saved_.o; }
  const parallel::Tensor& d_o() const { return reorders() ? in_tiles_.d_o : d_o_; }
  const parallel::Tensor& d_qkv() const { return reorders() ? in_tiles_.d_qkv : d_qkv_; }

  void add_forward() {
    for (const Tile& tile : entry_.add_gathers(forward_)) {
      forward_.add(
          TaskKind::product, [this, tile] { forward(tile); }, tile.ready);
    }
    forward_.add(TaskKind::other_kernel, [this] { core(); });
    for (const Tile& tile : place_.tiles().all()) {
      exit_.add_sum(forward_, tile, forward_.add(TaskKind::product, [this, tile] { project(tile); }));
    }
  }
  void forward(const Tile& tile) const {
    of_qkv(tile.rows).forward(place_.workspace, qkv_.weights(), entry_.x(tile),
                              qkv().out(tile.first * 3 * own(), tile.rows * 3 * own()));
  }
  void core() {
    if (reorders()) order_->out_of_tiles(in_tiles_.qkv.in(), saved_.qkv.out());
    layer().core(place_.workspace, saved_);
    if (reorders()) order_->into_tiles(saved_.o.in(), in_tiles_.o.out());
  }
  void project(const Tile& tile) const {
    of_projection(tile.rows).forward(place_.workspace, projection_.weights(),
                                     o().in(tile.first * own(), tile.rows * own()), exit_.terms(tile));
  }

  void add_backward() {
    for (const Tile& tile : exit_.add_gathers(backward_)) {
      backward_.add(
          TaskKind::product, [this, tile] { projection_input_gradient(tile); }, tile.ready);
    }
    const int again = entry_.add_again(backward_);
    backward_.add(TaskKind::other_kernel, [this] { core_gradient(); });
    for (const Tile& tile : place_.tiles().all()) {
      entry_.add_sum(backward_, tile, backward_.add(TaskKind::product, [this, tile] { qkv_input_gradient(tile); }));
    }
    backward_.add(TaskKind::product, [this] { projection_weight_gradient(); });
    backward_.add(
        TaskKind::product, [this] { qkv_weight_gradient(); }, again);
  }
  void projection_input_gradient(const Tile& tile) const {
    of_projection(tile.rows).input_gradient(place_.workspace, projection_.weights().weight, exit_.dy(tile),
                                            d_o().out(tile.first * own(), tile.rows * own()));
  }
  void core_gradient() {
    if (reorders()) order_->out_of_tiles(in_tiles_.d_o.in(), d_o_.out());
    d_qkv_ = layer().core_gradient(place_.workspace, saved_, d_o_.in());
    if (reorders()) order_->into_tiles(d_qkv_.in(), in_tiles_.d_qkv.out());
  }
  void qkv_input_gradient(const Tile& tile) const {
    of_qkv(tile.rows).input_gradient(place_.workspace, qkv_.weights().weight,
                                     d_qkv().in(tile.first * 3 * own(), tile.rows * 3 * own()), entry_.d_terms(tile));
  }
  void projection_weight_gradient() const {
    const Tile whole = place_.tiles().whole();
    of_projection(whole.rows).weight_gradient(place_.workspace, o().in(), exit_.dy(whole), projection_.gradients());
  }
  void qkv_weight_gradient() const {
    of_qkv(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x_again(), d_qkv().in(), qkv_.gradients());
  }

  Place place_;
  Entry entry_;
  Exit exit_;
  LinearShare qkv_, projection_;
  parallel::AttentionSaved saved_;
  parallel::Tensor d_o_, d_qkv_;
  std::optional<RowOrder> order_;
  struct InTiles {
    parallel::Tensor qkv, o, d_o, d_qkv;
  } in_tiles_;  // where tiles reorder rows
};

}  // namespace

std::unique_ptr<Block> make_attention_block(const Place& place) {
  return std::make_unique<AttentionBlock>(place);
}

}  // namespace lockstep::layer_bench
