// Column-parallel and row-parallel linear layers alone: h to 4h, and 4h to h.
#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using parallel::Split;

parallel::Parameter columns_of_all(const Place& place, std::string name) {
  return {.name = std::move(name),
          .shape = {place.shape.rows(), place.shape.inner()},
          .split = Split::columns,
          .deviation = 1};
}

class ColumnBlock final : public Block {
 public:
  explicit ColumnBlock(const Place& place)
      : place_(place),
        entry_(place),
        up_(place, "up", place.shape.inner(), place.shape.hidden, Split::rows),
        dy_(place.random(columns_of_all(place, "dy"))),
        y_(place.make(dy_.elems())) {
    entry_.add_forward(forward_, [this](const Piece& piece, kernels::In x) {
      of(piece.rows).forward(place_.workspace, up_.weights(), x, y_.out(piece.row * own(), piece.rows * own()));
    });
    const int again = entry_.add_again(backward_);
    entry_.add_backward(backward_, [this](const Piece& piece, kernels::Out dx) {
      of(piece.rows)
          .input_gradient(place_.workspace, up_.weights().weight, dy_.in(piece.row * own(), piece.rows * own()), dx);
    });
    backward_.add_kernel(
        [this] { of(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x(), dy_.in(), up_.gradients()); },
        again);
  }

  void reset() override {
    entry_.spoil();
    up_.reset();
    set_bytes(place_.workspace.memory, y_, 0xff);
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{{columns_of_all(place_, "y"), &y_}, entry_.result()};
    up_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.inner() / place_.sharing.ranks; }
  Linear of(std::int64_t rows) const { return {{rows, place_.shape.hidden, own()}}; }

  Place place_;
  Entry entry_;
  LinearShare up_;
  parallel::Tensor dy_, y_;
};

class RowBlock final : public Block {
 public:
  explicit RowBlock(const Place& place)
      : place_(place),
        exit_(place),
        down_(place, "down", place.shape.hidden, place.shape.inner(), Split::columns),
        x_(place.random(columns_of_all(place, "x"))),
        dx_(place.make(x_.elems())) {
    exit_.add_forward(forward_, [this](const Piece& piece, kernels::Out y) {
      of(piece.rows).forward(place_.workspace, down_.weights(), x_.in(piece.row * own(), piece.rows * own()), y);
    });
    exit_.add_backward(backward_, [this](const Piece& piece, kernels::In dy) {
      of(piece.rows)
          .input_gradient(place_.workspace, down_.weights().weight, dy, dx_.out(piece.row * own(), piece.rows * own()));
    });
    exit_.add_once_more(backward_, [this](const Piece& piece, kernels::In dy) {
      of(piece.rows)
          .weight_gradient(place_.workspace, x_.in(piece.row * own(), piece.rows * own()), dy, down_.gradients());
    });
  }

  void reset() override {
    exit_.spoil();
    down_.reset();
    set_bytes(place_.workspace.memory, dx_, 0xff);
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{exit_.result(), {columns_of_all(place_, "dx"), &dx_}};
    down_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.inner() / place_.sharing.ranks; }
  Linear of(std::int64_t rows) const { return {{rows, own(), place_.shape.hidden}}; }

  Place place_;
  Exit exit_;
  LinearShare down_;
  parallel::Tensor x_, dx_;
};

}  // namespace

std::unique_ptr<Block> make_column_block(const Place& place) {
  return std::make_unique<ColumnBlock>(place);
}

std::unique_ptr<Block> make_row_block(const Place& place) {
  return std::make_unique<RowBlock>(place);
}

}  // namespace lockstep::layer_bench
