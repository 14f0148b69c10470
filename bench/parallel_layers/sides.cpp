#include "bench/parallel_layers/sides.h"

#include <utility>

#include "bench/parallel_layers/row_order.h"
#include "bench/parallel_layers/values.h"

namespace lockstep::layer_bench {
namespace {

constexpr unsigned char kSpoilt = 0xff;  // a NaN in every dtype

void spoil_all(const Place& place, std::initializer_list<const parallel::Tensor*> tensors) {
  for (const parallel::Tensor* tensor : tensors) {
    if (tensor->given()) set_bytes(place.workspace.memory, *tensor, kSpoilt);
  }
}

// `own` to all ranks' rows in `all`, tile by tile; one tile of what is there if nothing is gathered.
std::vector<Tile> add_gathers_of(Pass& pass, const Place& place, const parallel::Tensor& own,
                                 const parallel::Tensor& all) {
  const Tiles tiles = place.tiles();
  if (!all.given()) return {tiles.whole()};
  const std::int64_t count = tiles.tile_rows() * place.shape.hidden;
  const std::int64_t own_count = tiles.own_tile_rows() * place.shape.hidden;
  std::vector<Tile> gathered = tiles.all();
  for (Tile& tile : gathered) {
    const kernels::In from = own.in(tile.number * own_count, own_count);
    tile.ready = pass.add(TaskKind::exchange, place.exchanger->all_gather(from, all.out(tile.number * count, count)));
  }
  return gathered;
}

// All ranks' terms of a tile: in place, or into this rank's rows.
void add_sum_of(Pass& pass, const Place& place, const Tile& tile, int after, const parallel::Tensor& terms,
                const parallel::Tensor& own) {
  if (place.exchanger == nullptr) return;
  const std::int64_t columns = place.shape.hidden;
  const std::int64_t begin = tile.first * columns;
  const std::int64_t count = tile.rows * columns;
  const std::int64_t own_count = place.tiles().own_tile_rows() * columns;
  pass.add(TaskKind::exchange,
           own.given()
               ? place.exchanger->reduce_scatter(terms.in(begin, count), own.out(tile.number * own_count, own_count))
               : place.exchanger->all_reduce(terms.inout(begin, count)),
           after);
}

}  // namespace

parallel::Tensor Place::make(std::int64_t elems) const {
  return workspace.memory.make(parallel::MemoryKind::activations, shape.dtype, elems);
}

parallel::Tensor Place::random(const workload::Parameter& whole) const {
  return random_share(workspace.memory, shape.dtype, whole, tensor());
}

parallel::Tensor Place::random_in_tiles(const workload::Parameter& whole) const {
  parallel::Tensor rows = random(whole);
  if (!tiles().reorders()) return rows;
  parallel::Tensor in_tiles = make(rows.elems());
  RowOrder(workspace, tiles()).into_tiles(rows.in(), in_tiles.out());
  return in_tiles;
}

workload::Parameter rows_of_all(const Place& place, std::string name) {
  return {.name = std::move(name),
          .shape = {place.shape.rows(), place.shape.hidden},
          .split = place.sharing.sequence_parallel ? workload::Split::rows : workload::Split::none,
          .deviation = 1};
}

Entry::Entry(const Place& place)
    : place_(place),
      own_(place.random(rows_of_all(place, "x"))),
      d_terms_(place.make(place.shape.rows() * place.shape.hidden)) {
  if (!gathers()) return;
  gathered_ = place.make(d_terms_.elems());
  again_ = place.make(d_terms_.elems());
  d_own_ = place.make(own_.elems());
}

std::vector<Tile> Entry::add_gathers(Pass& pass) const {
  return add_gathers_of(pass, place_, own_, gathered_);
}

kernels::In Entry::x(const Tile& tile) const {
  const std::int64_t columns = place_.shape.hidden;
  return (gathers() ? gathered_ : own_).in(tile.first * columns, tile.rows * columns);
}

int Entry::add_again(Pass& pass) const {
  return add_gathers_of(pass, place_, own_, again_).back().ready;
}

kernels::Out Entry::d_terms(const Tile& tile) const {
  const std::int64_t columns = place_.shape.hidden;
  return d_terms_.out(tile.first * columns, tile.rows * columns);
}

void Entry::add_sum(Pass& pass, const Tile& tile, int after) const {
  add_sum_of(pass, place_, tile, after, d_terms_, d_own_);
}

void Entry::spoil() const {
  spoil_all(place_, {&gathered_, &again_, &d_terms_, &d_own_});
}

Exit::Exit(const Place& place)
    : place_(place),
      terms_(place.make(place.shape.rows() * place.shape.hidden)),
      d_own_(place.random(rows_of_all(place, "dy"))) {
  if (!gathers()) return;
  own_ = place.make(d_own_.elems());
  d_all_ = place.make(terms_.elems());
}

kernels::Out Exit::terms(const Tile& tile) const {
  const std::int64_t columns = place_.shape.hidden;
  return terms_.out(tile.first * columns, tile.rows * columns);
}

void Exit::add_sum(Pass& pass, const Tile& tile, int after) const {
  add_sum_of(pass, place_, tile, after, terms_, own_);
}

std::vector<Tile> Exit::add_gathers(Pass& pass) const {
  return add_gathers_of(pass, place_, d_own_, d_all_);
}

kernels::In Exit::dy(const Tile& tile) const {
  const std::int64_t columns = place_.shape.hidden;
  return (gathers() ? d_all_ : d_own_).in(tile.first * columns, tile.rows * columns);
}

int Exit::add_whole_gather(Pass& pass) const {
  if (!gathers()) return kNothing;
  return pass.add(TaskKind::exchange, place_.exchanger->all_gather(d_own_.in(), d_all_.out()));
}

void Exit::spoil() const {
  spoil_all(place_, {&terms_, &own_, &d_all_});
}

}  // namespace lockstep::layer_bench
