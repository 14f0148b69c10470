// The minimum time of a two-shot all-reduce on this machine, with the least possible traffic if each rank has its own
// buffers: every element is read from p inputs, summed, and written to p outputs. Plain loops on free-running threads:
// nothing waits within a call.
//   two_shot_limit RANKS THREADS SIZES CALLS
// Each size is timed with ordinary and with non-temporal stores; the faster kind counts. Prints
// a row of compare/peers/peers.h per size.
#include <immintrin.h>

#include <barrier>
#include <memory>

#include "compare/peers/peers.h"

using namespace lockstep::peers;

namespace {

typedef float Vector __attribute__((vector_size(16)));
constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);

// Each rank's buffers are on separate pages.
struct Buffers {
  explicit Buffers(std::size_t vectors) : input(new Vector[vectors]), output(new Vector[vectors]) {}
  std::unique_ptr<Vector[]> input;
  std::unique_ptr<Vector[]> output;
};

template <int kRanks, bool kPastCaches>
void sum_part(const std::vector<Buffers>& buffers, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    Vector sum = buffers[0].input[i];
    for (std::size_t r = 1; r < kRanks; ++r) sum += buffers[r].input[i];
    for (std::size_t r = 0; r < kRanks; ++r) {
      if constexpr (kPastCaches) {
        _mm_stream_ps(reinterpret_cast<float*>(&buffers[r].output[i]), sum);
      } else {
        buffers[r].output[i] = sum;
      }
    }
  }
}

using Part = void (*)(const std::vector<Buffers>&, std::size_t, std::size_t);

template <bool kPastCaches>
Part part_for(int ranks) {
  if (ranks == 2) return sum_part<2, kPastCaches>;
  if (ranks == 4) return sum_part<4, kPastCaches>;
  if (ranks == 8) return sum_part<8, kPastCaches>;
  std::fprintf(stderr, "error: RANKS is %d; allowed: 2 4 8\n", ranks);
  std::exit(6);
}

std::vector<double> time_parts(Part part, std::vector<Buffers>& buffers, std::size_t vectors, int threads, int calls) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  std::barrier meet(threads);
  const auto run = [&](int thread) {
    const std::size_t begin = begin_of_part(vectors, thread, threads);
    const std::size_t end = begin_of_part(vectors, thread + 1, threads);
    for (int call = -2; call < calls; ++call) {
      // As in the sweeps, ranks write their inputs and outputs before each call.
      for (std::size_t r = static_cast<std::size_t>(thread); r < buffers.size();
           r += static_cast<std::size_t>(threads)) {
        std::fill_n(buffers[r].output.get(), vectors, Vector{-1, -1, -1, -1});
        std::fill_n(buffers[r].input.get(), vectors, Vector{1, 1, 1, 1});
      }
      meet.arrive_and_wait();
      const auto before = Clock::now();
      part(buffers, begin, end);
      _mm_sfence();
      meet.arrive_and_wait();
      if (thread == 0 && call >= 0) {
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
      }
    }
  };
  run_on_threads(threads, run);
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: two_shot_limit RANKS THREADS SIZES CALLS\n");
    return 6;
  }
  const int ranks = std::atoi(argv[1]);
  const int threads = std::atoi(argv[2]);
  for (std::size_t bytes : parse_sizes(argv[3])) {
    const std::size_t vectors = std::max<std::size_t>(bytes / sizeof(float) / kLanes, 1);
    std::vector<Buffers> buffers;
    for (int r = 0; r < ranks; ++r) buffers.emplace_back(vectors);
    const int calls = calls_for(bytes, std::atoi(argv[4]));
    std::vector<double> plain = time_parts(part_for<false>(ranks), buffers, vectors, threads, calls);
    std::vector<double> past = time_parts(part_for<true>(ranks), buffers, vectors, threads, calls);
    print_row("two-shot limit", ranks, bytes, median(plain) < median(past) ? plain : past);
  }
  return 0;
}
