// The pair of a transformer's MLP: column-parallel, GELU, row-parallel.
#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"
#include "parallel/layers/mlp.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using parallel::Split;

class MlpBlock final : public Block {
 public:
  explicit MlpBlock(const Place& place)
      : place_(place),
        entry_(place),
        exit_(place),
        up_(place, "up", place.shape.inner(), place.shape.hidden, Split::rows),
        down_(place, "down", place.shape.hidden, place.shape.inner(), Split::columns),
        saved_{place.make(place.shape.rows() * own()), place.make(place.shape.rows() * own())},
        d_pre_(place.make(saved_.pre.elems())) {
    add_forward();
    add_backward();
  }

  void reset() override {
    entry_.spoil();
    exit_.spoil();
    up_.reset();
    down_.reset();
    for (const parallel::Tensor* one : {&saved_.pre, &saved_.act, &d_pre_}) {
      set_bytes(place_.workspace.memory, *one, 0xff);
    }
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{exit_.result(), entry_.result()};
    up_.add_results(all);
    down_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.inner() / place_.sharing.ranks; }
  Linear of_up(std::int64_t rows) const { return {{rows, place_.shape.hidden, own()}}; }
  Linear of_down(std::int64_t rows) const { return {{rows, own(), place_.shape.hidden}}; }

  void add_forward() {
    entry_.add_forward(forward_, [this](const Piece& piece, kernels::In x) {
      const std::int64_t begin = piece.row * own();
      const std::int64_t count = piece.rows * own();
      of_up(piece.rows)
          .forward_gelu(place_.workspace, up_.weights(), x, saved_.pre.out(begin, count), saved_.act.out(begin, count));
    });
    exit_.add_forward(forward_, [this](const Piece& piece, kernels::Out y) {
      of_down(piece.rows)
          .forward(place_.workspace, down_.weights(), saved_.act.in(piece.row * own(), piece.rows * own()), y);
    });
  }

  void add_backward() {
    exit_.add_backward(backward_, [this](const Piece& piece, kernels::In dy) {
      const std::int64_t begin = piece.row * own();
      const std::int64_t count = piece.rows * own();
      of_down(piece.rows)
          .input_gradient_through_gelu(place_.workspace, down_.weights().weight, dy, saved_.pre.in(begin, count),
                                       d_pre_.out(begin, count));
    });
    const int again = entry_.add_again(backward_);
    entry_.add_backward(backward_, [this](const Piece& piece, kernels::Out dx) {
      of_up(piece.rows)
          .input_gradient(place_.workspace, up_.weights().weight, d_pre_.in(piece.row * own(), piece.rows * own()), dx);
    });
    exit_.add_once_more(backward_, [this](const Piece& piece, kernels::In dy) {
      of_down(piece.rows)
          .weight_gradient(place_.workspace, saved_.act.in(piece.row * own(), piece.rows * own()), dy,
                           down_.gradients());
    });
    backward_.add_kernel(
        [this] {
          of_up(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x(), d_pre_.in(), up_.gradients());
        },
        again);
  }

  Place place_;
  Entry entry_;
  Exit exit_;
  LinearShare up_, down_;
  parallel::MlpSaved saved_;
  parallel::Tensor d_pre_;
};

}  // namespace

std::unique_ptr<Block> make_mlp_block(const Place& place) {
  return std::make_unique<MlpBlock>(place);
}

}  // namespace lockstep::layer_bench
