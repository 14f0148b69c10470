#include "bench/parallel_layers/sides.h"

#include <utility>

#include "bench/parallel_layers/values.h"

namespace lockstep::layer_bench {
namespace {

constexpr unsigned char kSpoilt = 0xff;  // a NaN in every dtype

void spoil_all(const Place& place, std::initializer_list<const parallel::Tensor*> tensors) {
  for (const parallel::Tensor* tensor : tensors) {
    if (tensor->given()) set_bytes(place.workspace.memory, *tensor, kSpoilt);
  }
}

// Tile by tile: the product of its pieces, then its sum: in place, or into this rank's rows.
void add_products_and_sums(Pass& pass, const Place& place, const parallel::Tensor& terms, const parallel::Tensor& own,
                           const std::function<void(const Piece&, kernels::Out)>& product) {
  const Tiles tiles = place.tiles();
  const std::int64_t columns = place.shape.hidden;
  for (int t = 0; t < tiles.sharing.tiles; ++t) {
    int last = kNothing;
    for (const Piece& piece : tiles.pieces(t)) {
      last = pass.add_kernel(
          [product, piece, to = terms.out(piece.packed * columns, piece.rows * columns)] { product(piece, to); });
    }
    if (place.exchanger == nullptr) continue;
    const std::int64_t begin = t * tiles.tile_rows() * columns;
    const std::int64_t count = tiles.tile_rows() * columns;
    const std::int64_t own_count = tiles.own_tile_rows() * columns;
    pass.add_exchange(own.given()
                          ? place.exchanger->reduce_scatter(terms.in(begin, count), own.out(t * own_count, own_count))
                          : place.exchanger->all_reduce(terms.inout(begin, count)),
                      last);
  }
}

}  // namespace

parallel::Tensor Place::make(std::int64_t elems) const {
  return workspace.memory.make(parallel::MemoryKind::activations, shape.dtype, elems);
}

parallel::Tensor Place::random(const parallel::Parameter& whole) const {
  return random_share(workspace.memory, shape.dtype, whole, tensor());
}

parallel::Parameter rows_of_all(const Place& place, std::string name) {
  return {.name = std::move(name),
          .shape = {place.shape.rows(), place.shape.hidden},
          .split = place.sharing.sequence_parallel ? parallel::Split::rows : parallel::Split::none,
          .deviation = 1};
}

Entry::Entry(const Place& place)
    : place_(place),
      own_(place.random(rows_of_all(place, "x"))),
      d_terms_(place.make(place.shape.rows() * place.shape.hidden)) {
  if (!gathers()) return;
  packed_ = place.make(d_terms_.elems());
  again_ = place.make(d_terms_.elems());
  d_own_ = place.make(own_.elems());
}

void Entry::add_forward(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const {
  const Tiles tiles = place_.tiles();
  const std::int64_t columns = place_.shape.hidden;
  const parallel::Tensor& from = gathers() ? packed_ : own_;
  for (int t = 0; t < tiles.sharing.tiles; ++t) {
    int gathered = kNothing;
    if (gathers()) {
      const std::int64_t own_count = tiles.own_tile_rows() * columns;
      const std::int64_t count = tiles.tile_rows() * columns;
      gathered = pass.add_exchange(
          place_.exchanger->all_gather(own_.in(t * own_count, own_count), packed_.out(t * count, count)));
    }
    for (const Piece& piece : tiles.pieces(t)) {
      pass.add_kernel(
          [product, piece, x = from.in(piece.packed * columns, piece.rows * columns)] { product(piece, x); }, gathered);
    }
  }
}

int Entry::add_again(Pass& pass) const {
  return gathers() ? pass.add_exchange(place_.exchanger->all_gather(own_.in(), again_.out())) : kNothing;
}

void Entry::add_backward(Pass& pass, const std::function<void(const Piece&, kernels::Out)>& product) const {
  add_products_and_sums(pass, place_, d_terms_, d_own_, product);
}

void Entry::spoil() const {
  spoil_all(place_, {&packed_, &again_, &d_terms_, &d_own_});
}

Exit::Exit(const Place& place)
    : place_(place),
      terms_(place.make(place.shape.rows() * place.shape.hidden)),
      d_own_(place.random(rows_of_all(place, "dy"))) {
  if (!gathers()) return;
  own_ = place.make(d_own_.elems());
  d_all_ = place.make(terms_.elems());
}

void Exit::add_forward(Pass& pass, const std::function<void(const Piece&, kernels::Out)>& product) const {
  add_products_and_sums(pass, place_, terms_, own_, product);
}

std::vector<Piece> Exit::pieces(int tile) const {
  if (gathers()) return place_.tiles().pieces(tile);
  return {{0, 0, place_.shape.rows()}};
}

void Exit::add_products(Pass& pass, int tile, int gathered,
                        const std::function<void(const Piece&, kernels::In)>& product) const {
  const std::int64_t columns = place_.shape.hidden;
  const parallel::Tensor& from = gathers() ? d_all_ : d_own_;
  for (const Piece& piece : pieces(tile)) {
    pass.add_kernel(
        [product, piece, dy = from.in(piece.packed * columns, piece.rows * columns)] { product(piece, dy); }, gathered);
  }
}

void Exit::add_backward(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const {
  const std::int64_t columns = place_.shape.hidden;
  for (int t = 0; t < backward_tiles(); ++t) {
    int gathered = kNothing;
    if (gathers()) {
      const std::int64_t own_count = place_.tiles().own_tile_rows() * columns;
      const std::int64_t count = place_.tiles().tile_rows() * columns;
      gathered = pass.add_exchange(
          place_.exchanger->all_gather(d_own_.in(t * own_count, own_count), d_all_.out(t * count, count)));
    }
    add_products(pass, t, gathered, product);
  }
}

void Exit::add_once_more(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const {
  for (int t = 0; t < backward_tiles(); ++t) add_products(pass, t, kNothing, product);
}

int Exit::add_whole_backward(Pass& pass) const {
  return gathers() ? pass.add_exchange(place_.exchanger->all_gather(d_own_.in(), d_all_.out())) : kNothing;
}

void Exit::spoil() const {
  spoil_all(place_, {&terms_, &own_, &d_all_});
}

}  // namespace lockstep::layer_bench
