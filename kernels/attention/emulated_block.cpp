#include "kernels/attention/emulated_block.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstring>
#include <exception>
#include <string>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr int kWarp = 32;
constexpr std::size_t kSharedAlignment = 128;

[[noreturn]] void fail(const std::string& what) {
  throw core::Error(core::Failure::internal, "emulated block: " + what);
}

}  // namespace

namespace {

// A place to go on from. swapcontext would do, but asks the system to save the signal mask at each switch, which takes
// most of a test's time; so the system makes a context once, and is left alone from then on.
struct Place {
  ucontext_t context = {};
  jmp_buf jump = {};
  bool started = false;
};

// Leaves `from`, where somebody else may come back, for `to`. Not inlined: what a function's variables hold after
// setjmp returns for the second time is not certain, and this one has none.
[[gnu::noinline]] void go(Place& from, Place& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.started) _longjmp(to.jump, 1);
  to.started = true;
  setcontext(&to.context);
}

}  // namespace

struct EmulatedBlock::State {
  // Threads that wait for each other.
  struct Meeting {
    int members = 0;
    std::vector<int> waiting = {};
  };
  struct Thread {
    Place place = {};
    int exchanges = 0;
  };

  State(EmulatedBlock& emulated, const Options& wanted);
  void body_of(int thread);
  void meet(Meeting& meeting);

  EmulatedBlock& block;
  Options options;
  core::Random random;
  std::vector<std::byte> memory;
  std::byte* shared;
  std::unique_ptr<std::byte[]> stacks;  // not cleared: most of it is never touched
  std::vector<Thread> threads;
  std::vector<std::array<WarpWords, 2>> words;  // of each warp, for two exchanges in turn
  std::vector<Meeting> warps;
  Meeting all;

  Place scheduler = {.started = true};
  const std::function<void(EmulatedLane&)>* body = nullptr;
  std::vector<int> ready = {};
  int current = 0;
  int unfinished = 0;
  std::exception_ptr error = nullptr;
};

namespace {

// makecontext passes ints only.
void enter(unsigned upper, unsigned lower) {
  const auto address = static_cast<std::uintptr_t>(std::uint64_t{upper} << 32 | lower);
  (*reinterpret_cast<std::function<void()>*>(address))();  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

EmulatedBlock::State::State(EmulatedBlock& emulated, const Options& wanted)
    : block(emulated),
      options(wanted),
      random(wanted.seed),
      memory(wanted.shared_bytes + kSharedAlignment, std::byte{0xff}),
      stacks(new std::byte[static_cast<std::size_t>(wanted.threads) * kStackBytes]),
      threads(static_cast<std::size_t>(wanted.threads)),
      words(static_cast<std::size_t>(wanted.threads / kWarp)),
      warps(static_cast<std::size_t>(wanted.threads / kWarp), Meeting{.members = kWarp}),
      all{.members = wanted.threads} {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  shared = memory.data() + (kSharedAlignment - address % kSharedAlignment);
}

void EmulatedBlock::State::body_of(int thread) {
  try {
    EmulatedLane lane(block, thread);
    (*body)(lane);
    lane.wait_for_copies();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  --unfinished;
  go(threads.at(static_cast<std::size_t>(thread)).place, scheduler);  // for ever
}

void EmulatedBlock::State::meet(Meeting& meeting) {
  meeting.waiting.push_back(current);
  if (static_cast<int>(meeting.waiting.size()) == meeting.members) {
    ready.insert(ready.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  go(threads.at(static_cast<std::size_t>(current)).place, scheduler);
}

EmulatedBlock::EmulatedBlock(const Options& options) : state_(std::make_unique<State>(*this, options)) {}
EmulatedBlock::~EmulatedBlock() = default;

void EmulatedBlock::run(const std::function<void(EmulatedLane&)>& body) {
  State& s = *state_;
  s.body = &body;
  s.unfinished = s.options.threads;
  std::vector<std::function<void()>> entries(s.threads.size());
  for (int t = 0; t < s.options.threads; ++t) {
    auto& thread = s.threads.at(static_cast<std::size_t>(t));
    auto& entry = entries.at(static_cast<std::size_t>(t));
    entry = [&s, t] { s.body_of(t); };
    ucontext_t& context = thread.place.context;
    thread.place.started = false;
    getcontext(&context);
    context.uc_stack.ss_sp = s.stacks.get() + static_cast<std::size_t>(t) * kStackBytes;
    context.uc_stack.ss_size = kStackBytes;
    const auto address = reinterpret_cast<std::uintptr_t>(&entry);
    makecontext(&context, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
    s.ready.push_back(t);
  }
  while (!s.ready.empty() && !s.error) {
    const std::size_t turn = s.random.below(s.ready.size());
    s.current = s.ready.at(turn);
    s.ready.at(turn) = s.ready.back();
    s.ready.pop_back();
    go(s.scheduler, s.threads.at(static_cast<std::size_t>(s.current)).place);
  }
  if (s.error) std::rethrow_exception(s.error);
  if (s.unfinished > 0) fail(std::to_string(s.unfinished) + " threads wait for others for ever");
}

void EmulatedBlock::meet_block() {
  state_->meet(state_->all);
}

const EmulatedBlock::WarpWords& EmulatedBlock::exchange(int thread, const Words& mine) {
  const auto warp = static_cast<std::size_t>(thread / kWarp);
  const int turn = state_->threads.at(static_cast<std::size_t>(thread)).exchanges++ % 2;
  WarpWords& words = state_->words.at(warp).at(static_cast<std::size_t>(turn));
  words.at(static_cast<std::size_t>(thread % kWarp)) = mine;
  state_->meet(state_->warps.at(warp));
  return words;
}

void EmulatedBlock::check_shared(const void* address, std::size_t size_bytes) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const State& s = *state_;
  if (at < s.shared || at + size_bytes > s.shared + s.options.shared_bytes) fail("an address is not in shared memory");
}

void* EmulatedLane::shared() const {
  return block_.state_->shared;
}

float EmulatedLane::from_lane(float value, int lane) {
  const auto& words = block_.exchange(thread_, {std::bit_cast<std::uint32_t>(value)});
  return std::bit_cast<float>(words.at(static_cast<std::size_t>(lane)).front());
}

void EmulatedLane::check_aligned(const void* address, std::size_t alignment_bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment_bytes != 0) fail("an address is not aligned");
}

void EmulatedLane::perform(const Copy& copy) {
  if (copy.there) {
    std::memcpy(copy.to, copy.from, copy.size_bytes);
  } else {
    std::memset(copy.to, 0, copy.size_bytes);
  }
}

void EmulatedLane::start_copy(const Copy& copy) {
  block_.check_shared(copy.to, copy.size_bytes);
  check_aligned(copy.to, copy.size_bytes);
  check_aligned(copy.from, copy.size_bytes);
  std::memset(copy.to, 0xff, copy.size_bytes);
  if (block_.state_->options.late_copies) {
    copies_.push_back(copy);
  } else {
    perform(copy);
  }
}

void EmulatedLane::wait_for_copies() {
  for (const Copy& copy : copies_) perform(copy);
  copies_.clear();
}

EmulatedLane::Matrices EmulatedLane::gather_matrices(const void* row) {
  constexpr std::size_t kRowBytes = 16;
  block_.check_shared(row, kRowBytes);
  check_aligned(row, kRowBytes);
  EmulatedBlock::Words mine{};
  std::memcpy(mine.data(), row, kRowBytes);
  const auto& words = block_.exchange(thread_, mine);
  Matrices matrices;
  for (std::size_t l = 0; l < kWarp; ++l)
    std::memcpy(matrices.at(l / 8).at(l % 8).data(), words.at(l).data(), kRowBytes);
  return matrices;
}

// PTX ISA, "ldmatrix": lane l has row l / 4, columns 2 (l % 4) and the next of each matrix.
EmulatedLane::Fragment EmulatedLane::load_matrices(const void* row) {
  const Matrices matrices = gather_matrices(row);
  const auto l = static_cast<std::size_t>(lane());
  Fragment f{};
  for (std::size_t w = 0; w < 4; ++w) {
    const auto& of_row = matrices.at(w).at(l / 4);
    f.words[w] = of_row.at(2 * (l % 4)) | std::uint32_t{of_row.at(2 * (l % 4) + 1)} << 16;
  }
  return f;
}

EmulatedLane::Fragment EmulatedLane::load_matrices_transposed(const void* row) {
  const Matrices matrices = gather_matrices(row);
  const auto l = static_cast<std::size_t>(lane());
  Fragment f{};
  for (std::size_t w = 0; w < 4; ++w) {
    const auto& m = matrices.at(w);
    f.words[w] = m.at(2 * (l % 4)).at(l / 4) | std::uint32_t{m.at(2 * (l % 4) + 1).at(l / 4)} << 16;
  }
  return f;
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". With group = lane / 4 and t = lane % 4:
// a: element i of 8 is in row group (+ 8 for i = 2, 3, 6, 7), column 2 t + i % 2 (+ 8 for i of 4 and more).
// b: element i of 4 is in row 2 t + i % 2 (+ 8 for i = 2, 3), column group.
// sums: element i of 4 is in row group (+ 8 for i = 2, 3), column 2 t + i % 2.
void EmulatedLane::multiply_add(float (&sums)[4], const Fragment& a, std::uint32_t b0, std::uint32_t b1,
                                float (*value)(std::uint16_t bits)) {
  const auto& words = block_.exchange(thread_, {a.words[0], a.words[1], a.words[2], a.words[3], b0, b1});
  const auto element = [&](std::size_t lane, std::size_t i) {
    return value(static_cast<std::uint16_t>(words.at(lane).at(i / 2) >> (16 * (i % 2))));
  };
  const auto of_a = [&](std::size_t row, std::size_t k) {
    return element(row % 8 * 4 + k % 8 / 2, k % 2 + (row >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0));
  };
  const auto of_b = [&](std::size_t k, std::size_t column) {
    return element(column * 4 + k % 8 / 2, 8 + k % 2 + (k >= 8 ? 2 : 0));
  };
  const auto l = static_cast<std::size_t>(lane());
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t row = l / 4 + (i >= 2 ? 8 : 0);
    const std::size_t column = 2 * (l % 4) + i % 2;
    for (std::size_t k = 0; k < 16; ++k) sums[i] += of_a(row, k) * of_b(k, column);
  }
}

}  // namespace lockstep::kernels
