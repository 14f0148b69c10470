// The fastest that plain loops move the data of a kernel: one array for each of the kernel's streams, of the same size,
// that is read, written, or read and written in place, all at the same relative speed, with almost no arithmetic.
//   streaming_limit THREADS COLD_BYTES MILLISECONDS NAME=STREAM+STREAM... ...      STREAM: r|w|u and bytes, as r4096
// Each call uses the next of several sets of arrays that together exceed COLD_BYTES (0: one set). Calls alternate
// between ordinary and streaming stores; the faster kind counts. Prints a row of compare/peers/peers.h per loop.
#include <immintrin.h>
#include <sched.h>

#include <barrier>
#include <cstring>

#include "compare/peers/peers.h"

using namespace lockstep::peers;

namespace {

typedef float Vector __attribute__((vector_size(64)));  // a cache line
constexpr std::size_t kLine = sizeof(Vector);
constexpr std::size_t kLinesAStep = 32;  // lines of the largest stream per step

enum class Kind : char { read = 'r', write = 'w', update = 'u' };

struct Stream {
  Kind kind;
  std::size_t bytes;
  std::size_t lines_per_step = 0;
};

struct Loop {
  std::string name;
  std::vector<Stream> streams;
  std::size_t steps = 0;
  std::size_t set_bytes = 0;
};

// Parses "adamw=r4096+u4096".
Loop parse_loop(const std::string& text) {
  Loop loop;
  const std::size_t equals = text.find('=');
  loop.name = text.substr(0, equals);
  std::stringstream parts(text.substr(equals + 1));
  std::size_t largest = kLine;
  for (std::string part; std::getline(parts, part, '+');) {
    loop.streams.push_back({static_cast<Kind>(part[0]), std::strtoull(part.c_str() + 1, nullptr, 10)});
    largest = std::max(largest, loop.streams.back().bytes);
  }
  loop.steps = std::max<std::size_t>(largest / (kLinesAStep * kLine), 1);
  for (Stream& stream : loop.streams) {
    stream.lines_per_step = std::max<std::size_t>(stream.bytes / loop.steps / kLine, 1);
    loop.set_bytes += (loop.steps * stream.lines_per_step + 5) *
                      kLine;  // a gap, because arrays with equal alignment collide in the caches
  }
  return loop;
}

template <bool kPastCaches>
inline void put(Vector* to, Vector value) {
  if constexpr (kPastCaches) {
    __m128i quarters[4];
    std::memcpy(quarters, &value, sizeof value);
    for (int q = 0; q < 4; ++q) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + q, quarters[q]);
  } else {
    *to = value;
  }
}

// Four sums, so that reads wait for memory and not for additions.
struct Sums {
  Vector of[4] = {};
};

inline void read_lines(const Vector* from, std::size_t lines, Sums& sums) {
  std::size_t i = 0;
  for (; i + 4 <= lines; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums.of[k] += from[i + k];
  }
  for (; i < lines; ++i) sums.of[0] += from[i];
}

template <bool kPastCaches>
void pass(const Loop& loop, char* set, std::size_t begin, std::size_t end, Sums& sums) {
  for (std::size_t step = begin; step < end; ++step) {
    char* array = set;
    for (const Stream& stream : loop.streams) {
      Vector* const lines = reinterpret_cast<Vector*>(array) + step * stream.lines_per_step;
      if (stream.kind == Kind::read) {
        read_lines(lines, stream.lines_per_step, sums);
      } else if (stream.kind == Kind::write) {
        for (std::size_t i = 0; i < stream.lines_per_step; ++i) put<kPastCaches>(lines + i, sums.of[i % 4]);
      } else {
        for (std::size_t i = 0; i < stream.lines_per_step; ++i) lines[i] += sums.of[i % 4];
      }
      array += (loop.steps * stream.lines_per_step + 5) * kLine;
    }
  }
  if constexpr (kPastCaches) _mm_sfence();
}

void bind_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

struct Times {
  std::vector<double> plain_us;
  std::vector<double> past_caches_us;
};

// Calls alternate until the time is over and there are five of each kind.
Times time_loop(const Loop& loop, const ColdSets& sets, int threads, double milliseconds) {
  using Clock = std::chrono::steady_clock;
  Times times;
  bool more = true;
  std::barrier meet(threads);
  const auto start = Clock::now();
  const auto us_since = [](Clock::time_point from) {
    return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
  };
  const auto run = [&](int thread) {
    bind_to_core(thread);
    Sums sums;
    const std::size_t begin = begin_of_part(loop.steps, thread, threads);
    const std::size_t end = begin_of_part(loop.steps, thread + 1, threads);
    for (std::size_t call = 0; more; ++call) {
      const bool past_caches = call % 2 == 1;
      meet.arrive_and_wait();
      const auto before = Clock::now();
      past_caches ? pass<true>(loop, sets[call], begin, end, sums) : pass<false>(loop, sets[call], begin, end, sums);
      meet.arrive_and_wait();
      if (thread == 0) {
        if (call >= 2) (past_caches ? times.past_caches_us : times.plain_us).push_back(us_since(before));
        more = us_since(start) < 1e3 * milliseconds || times.past_caches_us.size() < 5;
      }
      meet.arrive_and_wait();
    }
  };
  run_on_threads(threads, run);
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: streaming_limit THREADS COLD_BYTES MILLISECONDS NAME=STREAM+STREAM... ...\n");
    return 6;
  }
  const int threads = std::atoi(argv[1]);
  const std::size_t cold_bytes = std::strtoull(argv[2], nullptr, 10);
  for (int i = 4; i < argc; ++i) {
    const Loop loop = parse_loop(argv[i]);
    const ColdSets sets(loop.set_bytes, cold_bytes, 0, true);  // odd, because the kind of stores alternates
    const Times times = time_loop(loop, sets, threads, std::atof(argv[3]));
    print_row("streaming limit", loop.name,
              median(times.plain_us) < median(times.past_caches_us) ? times.plain_us : times.past_caches_us);
  }
  return 0;
}
