// A transformer's attention: Q, K and V of a rank's heads (column-parallel), their core, the projection (row-parallel).
#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"
#include "parallel/layers/attention.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using parallel::Split;

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
    add_forward();
    add_backward();
  }

  void reset() override {
    entry_.spoil();
    exit_.spoil();
    qkv_.reset();
    projection_.reset();
    set_bytes(place_.workspace.memory, saved_.qkv, 0xff);
    set_bytes(place_.workspace.memory, d_o_, 0xff);
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

  void add_forward() {
    entry_.add_forward(forward_, [this](const Piece& piece, kernels::In x) {
      of_qkv(piece.rows)
          .forward(place_.workspace, qkv_.weights(), x, saved_.qkv.out(piece.row * 3 * own(), piece.rows * 3 * own()));
    });
    forward_.add_kernel([this] { layer().core(place_.workspace, saved_); });
    exit_.add_forward(forward_, [this](const Piece& piece, kernels::Out y) {
      of_projection(piece.rows)
          .forward(place_.workspace, projection_.weights(), saved_.o.in(piece.row * own(), piece.rows * own()), y);
    });
  }

  void add_backward() {
    exit_.add_backward(backward_, [this](const Piece& piece, kernels::In dy) {
      of_projection(piece.rows)
          .input_gradient(place_.workspace, projection_.weights().weight, dy,
                          d_o_.out(piece.row * own(), piece.rows * own()));
    });
    backward_.add_kernel([this] { d_qkv_ = layer().core_gradient(place_.workspace, saved_, d_o_.in()); });
    const int again = entry_.add_again(backward_);
    entry_.add_backward(backward_, [this](const Piece& piece, kernels::Out dx) {
      of_qkv(piece.rows)
          .input_gradient(place_.workspace, qkv_.weights().weight,
                          d_qkv_.in(piece.row * 3 * own(), piece.rows * 3 * own()), dx);
    });
    exit_.add_once_more(backward_, [this](const Piece& piece, kernels::In dy) {
      of_projection(piece.rows)
          .weight_gradient(place_.workspace, saved_.o.in(piece.row * own(), piece.rows * own()), dy,
                           projection_.gradients());
    });
    backward_.add_kernel(
        [this] {
          of_qkv(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x(), d_qkv_.in(), qkv_.gradients());
        },
        again);
  }

  Place place_;
  Entry entry_;
  Exit exit_;
  LinearShare qkv_, projection_;
  parallel::AttentionSaved saved_;
  parallel::Tensor d_o_, d_qkv_;
};

}  // namespace

std::unique_ptr<Block> make_attention_block(const Place& place) {
  return std::make_unique<AttentionBlock>(place);
}

}  // namespace lockstep::layer_bench
