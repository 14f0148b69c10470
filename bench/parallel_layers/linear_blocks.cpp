// Column-parallel and row-parallel linear layers alone: h to 4h, and 4h to h.
#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using workload::Split;

workload::Parameter columns_of_all(const Place& place, std::string name) {
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
        dy_(place.random_in_tiles(columns_of_all(place, "dy"))),
        y_(place.make(dy_.elems())) {
    for (const Tile& tile : entry_.add_gathers(forward_)) {
      forward_.add(
          TaskKind::product, [this, tile] { forward(tile); }, tile.ready);
    }
    const int again = entry_.add_again(backward_);
    for (const Tile& tile : place_.tiles().all()) {
      entry_.add_sum(backward_, tile, backward_.add(TaskKind::product, [this, tile] { input_gradient(tile); }));
    }
    backward_.add(
        TaskKind::product, [this] { weight_gradient(); }, again);
  }

  void reset() override {
    entry_.spoil();
    up_.reset();
    set_bytes(place_.workspace.memory, y_, 0xff);
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{{.whole = columns_of_all(place_, "y"), .found = &y_, .in_tiles = true}, entry_.result()};
    up_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.inner() / place_.sharing.ranks; }
  Linear of(std::int64_t rows) const { return {{rows, place_.shape.hidden, own()}}; }

  void forward(const Tile& tile) const {
    of(tile.rows).forward(place_.workspace, up_.weights(), entry_.x(tile),
                          y_.out(tile.first * own(), tile.rows * own()));
  }
  void input_gradient(const Tile& tile) const {
    of(tile.rows).input_gradient(place_.workspace, up_.weights().weight, dy_.in(tile.first * own(), tile.rows * own()),
                                 entry_.d_terms(tile));
  }
  void weight_gradient() const {
    of(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x_again(), dy_.in(), up_.gradients());
  }

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
        x_(place.random_in_tiles(columns_of_all(place, "x"))),
        dx_(place.make(x_.elems())) {
    for (const Tile& tile : place_.tiles().all()) {
      exit_.add_sum(forward_, tile, forward_.add(TaskKind::product, [this, tile] { forward(tile); }));
    }
    for (const Tile& tile : exit_.add_gathers(backward_)) {
      backward_.add(
          TaskKind::product, [this, tile] { input_gradient(tile); }, tile.ready);
    }
    backward_.add(TaskKind::product, [this] { weight_gradient(); });
  }

  void reset() override {
    exit_.spoil();
    down_.reset();
    set_bytes(place_.workspace.memory, dx_, 0xff);
  }
  std::vector<Result> results() const override {
    std::vector<Result> all{exit_.result(), {.whole = columns_of_all(place_, "dx"), .found = &dx_, .in_tiles = true}};
    down_.add_results(all);
    return all;
  }

 private:
  std::int64_t own() const { return place_.shape.inner() / place_.sharing.ranks; }
  Linear of(std::int64_t rows) const { return {{rows, own(), place_.shape.hidden}}; }

  void forward(const Tile& tile) const {
    of(tile.rows).forward(place_.workspace, down_.weights(), x_.in(tile.first * own(), tile.rows * own()),
                          exit_.terms(tile));
  }
  void input_gradient(const Tile& tile) const {
    of(tile.rows).input_gradient(place_.workspace, down_.weights().weight, exit_.dy(tile),
                                 dx_.out(tile.first * own(), tile.rows * own()));
  }
  void weight_gradient() const {
    const Tile whole = place_.tiles().whole();
    of(whole.rows).weight_gradient(place_.workspace, x_.in(), exit_.dy(whole), down_.gradients());
  }

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
