// The pair of a transformer's MLP: column-parallel, GELU, row-parallel.
#include "bench/parallel_layers/block.h"
#include "bench/parallel_layers/values.h"
#include "bench/parallel_layers/weights.h"
#include "parallel/layers/mlp.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Linear;
using workload::Split;

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

  // Tile by tile through both products: the sum of one travels beside both of the next.
  void add_forward() {
    for (const Tile& tile : entry_.gathers() ? entry_.add_gathers(forward_) : place_.tiles().all()) {
      forward_.add(
          TaskKind::product, [this, tile] { up(tile); }, tile.ready);
      exit_.add_sum(forward_, tile, forward_.add(TaskKind::product, [this, tile] { down(tile); }));
    }
  }
  void up(const Tile& tile) const {
    const std::int64_t begin = tile.first * own();
    const std::int64_t count = tile.rows * own();
    of_up(tile.rows).forward_gelu(place_.workspace, up_.weights(), entry_.x(tile), saved_.pre.out(begin, count),
                                  saved_.act.out(begin, count));
  }
  void down(const Tile& tile) const {
    of_down(tile.rows).forward(place_.workspace, down_.weights(), saved_.act.in(tile.first * own(), tile.rows * own()),
                               exit_.terms(tile));
  }

  void add_backward() {
    for (const Tile& tile : exit_.add_gathers(backward_)) {
      backward_.add(
          TaskKind::product, [this, tile] { down_input_gradient(tile); }, tile.ready);
    }
    const int again = entry_.add_again(backward_);
    for (const Tile& tile : place_.tiles().all()) {
      entry_.add_sum(backward_, tile, backward_.add(TaskKind::product, [this, tile] { up_input_gradient(tile); }));
    }
    backward_.add(TaskKind::product, [this] { down_weight_gradient(); });
    backward_.add(
        TaskKind::product, [this] { up_weight_gradient(); }, again);
  }
  void down_input_gradient(const Tile& tile) const {
    const std::int64_t begin = tile.first * own();
    const std::int64_t count = tile.rows * own();
    of_down(tile.rows).input_gradient_through_gelu(place_.workspace, down_.weights().weight, exit_.dy(tile),
                                                   saved_.pre.in(begin, count), d_pre_.out(begin, count));
  }
  void up_input_gradient(const Tile& tile) const {
    of_up(tile.rows).input_gradient(place_.workspace, up_.weights().weight,
                                    d_pre_.in(tile.first * own(), tile.rows * own()), entry_.d_terms(tile));
  }
  void down_weight_gradient() const {
    const Tile whole = place_.tiles().whole();
    of_down(whole.rows).weight_gradient(place_.workspace, saved_.act.in(), exit_.dy(whole), down_.gradients());
  }
  void up_weight_gradient() const {
    of_up(place_.shape.rows()).weight_gradient(place_.workspace, entry_.x_again(), d_pre_.in(), up_.gradients());
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
