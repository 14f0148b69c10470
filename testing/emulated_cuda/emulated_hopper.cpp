#include "testing/emulated_cuda/emulated_hopper.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr std::uint32_t kWindow = 2048;
constexpr std::uint32_t kRowBytes = 128;
constexpr std::uint32_t kPieceBytes = 16;
constexpr std::int64_t kMostIdle =
    1'000'000;  // unsuccessful polls of all waiting threads in a row before a deadlock is reported
constexpr int kRegisterFile = 65536;
constexpr unsigned kAllWarps = 0xf;  // all warps of a warpgroup
constexpr std::size_t kDepth = 16;   // depth of a product

[[noreturn]] void fail(const std::string& what) {
  throw core::Error(core::Failure::internal, "emulated Hopper block: " + what);
}
void require(bool holds, const char* what) {
  if (!holds) fail(what);
}

// Returns where hardware stores the data of an address under the swizzle of 128 bytes: the piece's number in its row of
// 128 bytes xor the row's number modulo 8. Copies and products use the same mapping.
std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 3 & 0x70U);
}

// PTX ISA, "Matrix descriptor format", "Strides" and "Canonical layouts" of wgmma, for a swizzle of 128 bytes.
struct Matrix {
  std::uint32_t start;
  std::uint32_t leading;
  std::uint32_t stride;

  explicit Matrix(std::uint64_t descriptor)
      : start(field(descriptor, 0)), leading(field(descriptor, 16)), stride(field(descriptor, 32)) {
    require(descriptor >> 62 == 1, "a descriptor without the swizzle of 128 bytes");
    require((descriptor >> 49 & 7U) == 0, "a descriptor with a base offset");
  }
  static std::uint32_t field(std::uint64_t descriptor, int bit) {
    return static_cast<std::uint32_t>(descriptor >> bit & 0x3fffU) << 4;
  }
  // Returns the address of element `n` of the rows or columns and `k` of the depth.
  std::uint32_t address(std::size_t n, std::size_t k, bool transposed) const {
    const auto along = static_cast<std::uint32_t>(n);
    const auto depth = static_cast<std::uint32_t>(k);
    if (transposed) return start + along / 64 * leading + along % 64 * 2 + depth / 8 * stride + depth % 8 * kRowBytes;
    return start + along / 8 * stride + along % 8 * kRowBytes + depth * 2;
  }
};

}  // namespace

EmulatedHopperBlock::EmulatedHopperBlock(const Options& options)
    : options_(options),
      random_(options.seed),
      plain_({.threads = options.threads, .seed = options.seed}),
      memory_(static_cast<std::size_t>(options.shared_bytes), std::byte{0xff}),
      groups_(static_cast<std::size_t>(options.threads / kGroup)),
      hurry_(std::uint64_t{1} << random_.below(8)) {}

std::byte* EmulatedHopperBlock::memory_at(std::uint32_t address, std::uint32_t size) {
  require(address >= kWindow && address - kWindow + size <= memory_.size(), "an address is not in shared memory");
  return memory_.data() + (address - kWindow);
}

std::uint16_t EmulatedHopperBlock::element_at(std::uint32_t address) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory_at(swizzled(address), sizeof bits), sizeof bits);
  return bits;
}

EmulatedHopperBlock::Barrier& EmulatedHopperBlock::barrier_at(std::uint32_t address) {
  const auto found = barriers_.find(address);
  require(found != barriers_.end() && found->second.published, "a barrier is used before it was begun and published");
  return found->second;
}

void EmulatedHopperBlock::end_phase_if_complete(Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes > 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
}

void EmulatedHopperBlock::arrive(std::uint32_t address) {
  Barrier& barrier = barrier_at(address);
  require(barrier.pending > 0, "more arrivals at a barrier than its count");
  --barrier.pending;
  end_phase_if_complete(barrier);
}

void EmulatedHopperBlock::end_copy(std::size_t index) {
  const Copy copy = copies_.at(index);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
  const HeadTensor& from = copy.from;
  const auto [batch, first_row, head, first_column] = copy.at;
  std::uint32_t to = copy.to.begin;
  for (std::int64_t row = first_row; row < first_row + from.box_rows; ++row) {
    for (std::int64_t column = first_column; column < first_column + kRowBytes / 2; column += kPieceBytes / 2) {
      std::byte* const piece = memory_at(swizzled(to), kPieceBytes);
      const bool inside = row < from.rows && column < from.columns;
      const auto* const source = static_cast<const std::byte*>(from.data) + (batch * from.rows + row) * from.row_bytes +
                                 2 * (head * from.columns + column);
      if (inside) std::memcpy(piece, source, kPieceBytes);
      if (!inside) std::memset(piece, 0, kPieceBytes);
      to += kPieceBytes;
    }
  }
  Barrier& barrier = barrier_at(copy.barrier);
  barrier.bytes -= copy.to.end - copy.to.begin;
  require(barrier.bytes >= 0, "more bytes at a barrier than are expected");
  end_phase_if_complete(barrier);
}

void EmulatedHopperBlock::let_time_pass() {
  if (copies_.empty() || random_.below(hurry_) != 0) return;
  end_copy(random_.below(copies_.size()));
  idle_ = 0;
}

// PTX ISA, figures of wgmma .m64nNk16: in warp w, lane l holds rows 16 w + l / 4 of the sums (+ 8 for elements 2 and 3
// of a block of 8 columns), and columns 2 (l % 4) and the next of each block; of `a`, the elements of mma.m16n8k16.
void EmulatedHopperBlock::compute(Product& product) {
  const Factors& f = product.factors;
  const auto columns = static_cast<std::size_t>(f.columns);
  std::array<std::array<float, kDepth>, 64> a{};
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t k = 0; k < kDepth; ++k) {
      const std::size_t thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
      const std::size_t word = (row % 16 >= 8 ? 1U : 0U) + (k >= 8 ? 2U : 0U);
      const auto bits = f.a_in_registers ? static_cast<std::uint16_t>(product.a.at(thread).at(word) >> (16 * (k % 2)))
                                         : element_at(Matrix(f.a).address(row, k, f.transposed_a));
      a[row][k] = product.value(bits);
    }
  }
  std::vector<float> b(kDepth * columns);
  for (std::size_t k = 0; k < kDepth; ++k) {
    for (std::size_t n = 0; n < columns; ++n) {
      b[k * columns + n] = product.value(element_at(Matrix(f.b).address(n, k, f.transposed_b)));
    }
  }
  std::vector<float> row_sums(columns);
  for (std::size_t row = 0; row < a.size(); ++row) {
    std::fill(row_sums.begin(), row_sums.end(), 0.0F);
    for (std::size_t k = 0; k < kDepth; ++k) {
      for (std::size_t n = 0; n < columns; ++n) row_sums[n] += a[row][k] * b[k * columns + n];
    }
    for (std::size_t n = 0; n < columns; ++n) {
      const std::size_t thread = row / 16 * 32 + row % 8 * 4 + n % 8 / 2;
      float& sum = product.sums.at(thread)->at(n / 8 * 4 + (row % 16 >= 8 ? 2U : 0U) + n % 2);
      sum = f.add ? sum + row_sums[n] : row_sums[n];
    }
  }
  product.done = true;
}

void EmulatedHopperBlock::compute_until(Group& group, std::size_t number) {
  for (std::size_t i = group.first; i < number; ++i) {
    Product& product = group.products.at(i - group.first);
    if (!product.done) compute(product);
  }
}

void EmulatedHopperBlock::end_of(EmulatedHopperLane& lane) {
  require(lane.flights_.empty(), "a thread ends without waiting for its products");
}

void EmulatedHopperBlock::check_end() const {
  require(copies_.empty(), "the block ends before its copies");
  for (const auto& [id, meeting] : meetings_) require(meeting.arrived == 0, "somebody arrived at a meeting in vain");
  for (const Brought& box : brought_) require(box.was_read, "a copy was never read");
}

EmulatedHopperLane::EmulatedHopperLane(EmulatedHopperBlock& block, emulated::Threads& threads, int thread)
    : EmulatedLane(block.plain_, threads, thread),
      hopper_(block),
      threads_of_block_(threads),
      registers_(kRegisterFile / block.options_.threads / 8 * 8) {}

void EmulatedHopperLane::until(const std::string& what, const std::function<bool()>& come) {
  while (!come()) {
    if (++hopper_.idle_ > kMostIdle) fail(what + " never comes");
    hopper_.let_time_pass();
    threads_of_block_.give_way();
  }
  hopper_.idle_ = 0;
}

void EmulatedHopperLane::begin_barrier(std::uint32_t barrier, int count) {
  require(barrier % 8 == 0, "a barrier is not aligned");
  hopper_.memory_at(barrier, 8);
  require(count > 0 && hopper_.barriers_.emplace(barrier, EmulatedHopperBlock::Barrier{count, count}).second,
          "a barrier is begun twice, or with no count");
}

void EmulatedHopperLane::publish_barriers() {
  for (auto& [address, barrier] : hopper_.barriers_) barrier.published = true;
}

void EmulatedHopperLane::arrive(std::uint32_t barrier) {
  hopper_.arrive(barrier);
}

void EmulatedHopperLane::arrive_expecting(std::uint32_t barrier, int bytes) {
  hopper_.barrier_at(barrier).bytes += bytes;
  hopper_.arrive(barrier);
}

void EmulatedHopperLane::wait(std::uint32_t barrier, std::uint32_t parity) {
  const auto& waited = hopper_.barrier_at(barrier);
  until("the end of a barrier's phase", [&] { return waited.phase % 2 != parity; });
  seen_[barrier] = waited.phase;
}

void EmulatedHopperBlock::check_not_read(const Range& range, const char* what) const {
  for (const Group& group : groups_) {
    for (const Product& product : group.products) {
      if (product.warps_waited == kAllWarps) continue;
      for (const Range& read : product.reads) require(!read.meets(range), what);
    }
  }
}

void EmulatedHopperLane::store_shared(std::uint32_t to, std::uint32_t word) {
  hopper_.check_not_read({to, to + 4}, "a store to what a product may still read");
  require(to % 4 == 0, "a store that is not aligned");
  for (const auto& box : hopper_.brought_) {
    require(!box.range.meets({to, to + 4}) || seen_[box.barrier] > box.phase,
            "a store onto a copy that its thread has not waited for");
  }
  std::memcpy(hopper_.memory_at(to, 4), &word, 4);
  hopper_.unpublished_[to] = thread();
}

void EmulatedHopperLane::store_shared(std::uint32_t to, float first, float second) {
  store_shared(to, std::bit_cast<std::uint32_t>(first));
  store_shared(to + 4, std::bit_cast<std::uint32_t>(second));
}

void EmulatedHopperLane::clear_sixteen(std::uint32_t to) {
  require(to % 16 == 0, "a store that is not aligned");
  for (std::uint32_t word = to; word < to + 16; word += 4) store_shared(word, std::uint32_t{0});
}

std::uint32_t EmulatedHopperLane::load_shared(std::uint32_t from) {
  std::uint32_t word = 0;
  std::memcpy(&word, hopper_.memory_at(from, 4), 4);
  return word;
}

EmulatedHopperLane::Four EmulatedHopperLane::load_four(std::uint32_t from) {
  require(from % 16 == 0, "a load that is not aligned");
  Four four{};
  std::memcpy(four.at, hopper_.memory_at(from, sizeof four.at), sizeof four.at);
  return four;
}

void EmulatedHopperLane::publish_stores() {
  for (auto word = hopper_.unpublished_.begin(); word != hopper_.unpublished_.end();) {
    word = word->second == thread() ? hopper_.unpublished_.erase(word) : std::next(word);
  }
}

void EmulatedHopperLane::wait_for_turn(const std::uint32_t* counter, std::uint32_t turn) {
  until("the turn of a block", [&] { return *counter == turn; });
}

void EmulatedHopperLane::store_two(float* to, float first, float second) {
  require(reinterpret_cast<std::uintptr_t>(to) % 8 == 0, "a store that is not aligned");
  to[0] = first;
  to[1] = second;
}

void EmulatedHopperLane::add_two(float* to, float first, float second) {
  store_two(to, to[0] + first, to[1] + second);
}

void EmulatedHopperLane::load_box(std::uint32_t to, const HeadTensor& map, std::uint32_t barrier, int column, int head,
                                  int row, int batch) {
  require(to % 1024 == 0, "a box that is not aligned to the swizzle's pattern");
  const EmulatedHopperBlock::Range range{to, to + static_cast<std::uint32_t>(map.box_rows) * kRowBytes};
  std::memset(hopper_.memory_at(to, range.end - to), 0xff, range.end - to);
  hopper_.check_not_read(range, "a copy onto what a product may still read");
  auto& brought = hopper_.brought_;
  for (const auto& box : brought) {
    require(!box.range.meets(range) || box.was_read, "a copy onto what nobody has read");
  }
  brought.erase(std::remove_if(brought.begin(), brought.end(), [&](const auto& box) { return box.range.meets(range); }),
                brought.end());
  brought.push_back({range, barrier, hopper_.barrier_at(barrier).phase});
  hopper_.copies_.push_back({map, range, barrier, {batch, row, head, column}});
  if (hopper_.random_.below(4) == 0) hopper_.end_copy(hopper_.copies_.size() - 1);
}

void EmulatedHopperLane::change_registers(int registers, bool more) {
  require(registers % 8 == 0 && registers >= 24 && registers <= 256, "a number of registers that setmaxnreg refuses");
  require(more == (registers > registers_), "setmaxnreg in the wrong direction");
  const int change = registers - registers_;
  if (more) until("a register that somebody gives", [&] { return hopper_.free_registers_ >= change; });
  hopper_.free_registers_ -= change;
  registers_ = registers;
}

void EmulatedHopperLane::arrive_at_meeting(int id, int threads) {
  require(id >= 0 && id < 16 && threads % 32 == 0, "a meeting's number or size");
  auto& meeting = hopper_.meetings_[id];
  if (meeting.arrived == 0) meeting.threads = threads;
  require(meeting.threads == threads, "threads of a meeting disagree about its size");
  require(std::find(meeting.who.begin(), meeting.who.end(), thread()) == meeting.who.end(),
          "a thread arrives twice at one meeting");
  meeting.who.push_back(thread());
  if (++meeting.arrived < threads) return;
  meeting.arrived = 0;
  meeting.who.clear();
  ++meeting.turn;
}

void EmulatedHopperLane::meet_as(int id, int threads) {
  const std::uint64_t turn = hopper_.meetings_[id].turn;
  EmulatedHopperLane::arrive_at_meeting(id, threads);
  const auto& meeting = hopper_.meetings_[id];
  until("a meeting's last thread", [&] { return meeting.turn != turn; });
}

void EmulatedHopperLane::issue(const EmulatedHopperBlock::Factors& factors, float* d, const std::uint32_t* a,
                               float (*value)(std::uint16_t bits)) {
  require(may_multiply_, "a product after registers could change, without begin_products()");
  auto& group = hopper_.groups_.at(static_cast<std::size_t>(this->group()));
  const std::size_t number = issued_++;
  if (number == group.first + group.products.size()) {
    group.products.emplace_back();
    auto& made = group.products.back();
    made.factors = factors;
    made.value = value;
    const auto add_range = [&](std::uint64_t descriptor, std::size_t most, bool transposed) {
      const Matrix matrix(descriptor);
      const std::uint32_t last = matrix.address(most - 1, kDepth - 1, transposed);
      made.reads.push_back({matrix.start / kRowBytes * kRowBytes, last / kRowBytes * kRowBytes + kRowBytes});
    };
    if (!factors.a_in_registers) add_range(factors.a, 64, factors.transposed_a);
    add_range(factors.b, static_cast<std::size_t>(factors.columns), factors.transposed_b);
  }
  auto& product = group.products.at(number - group.first);
  require(product.factors == factors, "threads of a warpgroup disagree about a product");
  for (auto& box : hopper_.brought_) {
    const bool reads = std::any_of(product.reads.begin(), product.reads.end(),
                                   [&](const auto& read) { return read.meets(box.range); });
    if (!reads) continue;
    require(seen_[box.barrier] > box.phase, "a product reads a copy that its thread has not waited for");
    box.was_read = true;
  }
  for (const auto& read : product.reads) {
    const auto word = hopper_.unpublished_.lower_bound(read.begin);
    require(word == hopper_.unpublished_.end() || word->first >= read.end,
            "a product reads stores that are not published");
  }
  const auto t = static_cast<std::size_t>(thread() % EmulatedHopperBlock::kGroup);
  const auto elems = static_cast<std::size_t>(factors.columns / 2);
  const auto [flight, is_new] = flights_.try_emplace(d, Flight{std::vector<float>(d, d + elems), number});
  flight->second.last = number;
  if (is_new) std::memset(d, 0xff, elems * sizeof(float));
  product.sums.at(t) = &flight->second.sums;
  if (a != nullptr) {
    std::copy(a, a + 4, product.a.at(t).begin());
    held_.push_back({a, product.a.at(t), number});
  }
  if (++product.issued == EmulatedHopperBlock::kGroup && hopper_.random_.below(2) == 0) {
    hopper_.compute_until(group, number + 1);
  }
}

void EmulatedHopperLane::wait_for_all_but(std::size_t pending) {
  may_multiply_ = false;
  if (committed_.size() <= pending) return;
  const std::size_t end = committed_.at(committed_.size() - pending - 1);
  committed_.erase(committed_.begin(), committed_.end() - static_cast<std::ptrdiff_t>(pending));
  if (end == waited_) return;
  auto& group = hopper_.groups_.at(static_cast<std::size_t>(this->group()));
  until("a product of the whole warpgroup",
        [&] { return group.products.at(end - 1 - group.first).issued == EmulatedHopperBlock::kGroup; });
  hopper_.compute_until(group, end);
  deliver(end);
  waited_ = end;
}

void EmulatedHopperLane::deliver(std::size_t end) {
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    auto& [d, sums] = *flight;
    if (sums.last >= end) {
      ++flight;
      continue;
    }
    check_untouched(d, sums.sums.size());
    std::copy(sums.sums.begin(), sums.sums.end(), d);
    flight = flights_.erase(flight);
  }
  const auto is_done = [&](const HeldFactors& held) { return held.product < end; };
  for (const HeldFactors& held : held_) {
    require(!is_done(held) || std::equal(held.words.begin(), held.words.end(), held.registers),
            "factors in registers changed under a product");
  }
  held_.erase(std::remove_if(held_.begin(), held_.end(), is_done), held_.end());
  auto& group = hopper_.groups_.at(static_cast<std::size_t>(this->group()));
  for (std::size_t i = waited_; i < end; ++i) {
    auto& product = group.products.at(i - group.first);
    product.warps_waited |= 1U << (warp() % 4);
    ++product.delivered;
  }
  while (!group.products.empty() && group.products.front().delivered == EmulatedHopperBlock::kGroup) {
    group.products.pop_front();
    ++group.first;
  }
}

void EmulatedHopperLane::check_untouched(const float* d, std::size_t elems) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(d);
  require(std::all_of(bytes, bytes + elems * sizeof(float), [](std::byte b) { return b == std::byte{0xff}; }),
          "sums changed under a product");
}

void EmulatedHopperLane::check_settled(const float* d) const {
  require(flights_.find(const_cast<float*>(d)) == flights_.end(),
          "sums are used before their products were waited for");
}

}  // namespace lockstep::kernels
