#include "bench/collective_perf/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <span>

#include "bench/program/program.h"
#include "collectives/backends/backend.h"

namespace lockstep::sweep {
namespace {

constexpr std::int64_t kMaxRanks = 4096;     // with --transport simulated
constexpr std::int64_t kMaxThreads = 1024;   // ranks that run as threads or processes
constexpr std::int64_t kMaxBlocks = 512;     // per kernel: executors::cuda::kMostSlots
constexpr std::int64_t kMostCtas = 64;       // NCCL's MAXCHANNELS (src/include/device.h)
constexpr std::int64_t kMostOfACluster = 8;  // NCCL's NCCL_MAX_CGA_CLUSTER_SIZE (src/include/channel.h)
constexpr std::int64_t kMaxCalls = 1'000'000'000;
constexpr std::int64_t kMaxGraphLaunches = 1'000'000;

// Values of flags that are combined afterwards: -t and -g become ranks.
struct Reading {
  SweepFlags flags;
  std::optional<int> threads;
  std::optional<int> gpus;
};

using program::CommandLine;
using Flag = program::FlagOf<Reading>;

// Parses a list of names; "all" is every value.
template <typename T, typename Parse>
std::vector<T> named_list(const FlagValue& value, std::span<const T> all, Parse parse) {
  if (value.text == "all") return {all.begin(), all.end()};
  std::vector<T> found;
  for (const FlagValue& part : value.list()) {
    try {
      found.push_back(parse(part.text));
    } catch (const core::Error& error) {
      throw part.refused(error);
    }
  }
  return found;
}

std::vector<int> root_list(const FlagValue& value) {
  if (value.text == "-1" || value.text == "all") return {};
  return integer_list(value, 0, kMaxRanks - 1);
}

std::vector<std::string> transports() {
  std::vector<std::string> names;
  for (const backends::Backend& backend : backends::all_backends()) names.emplace_back(backend.name);
  names.emplace_back(kSimulated);
  return names;
}

std::vector<std::string> transport_list(const FlagValue& value) {
  for (const FlagValue& part : value.list()) part.index_of(transports());
  return text_list(value);
}

TimeOf time_of(const FlagValue& value) {
  constexpr std::array all{TimeOf::rank0, TimeOf::mean, TimeOf::min, TimeOf::max};
  return all.at(static_cast<std::size_t>(value.integer(0, 3)));
}

// NCCL looks its networks up by name, and only NCCL has the list.
std::string net_name(const FlagValue& value) {
  constexpr std::size_t kMost = 64;
  const bool is_name =
      !value.text.empty() && value.text.size() <= kMost &&
      std::all_of(value.text.begin(), value.text.end(), [](unsigned char c) { return std::isgraph(c); });
  if (!is_name) throw value.refused("not a network's name", "1 to 64 characters without blanks, such as Socket or IB");
  return value.text;
}

// Defaults are NCCL's own: nothing is requested.
std::optional<int> nonzero(int value) {
  return value == 0 ? std::nullopt : std::optional(value);
}

std::string protocol(const FlagValue& value) {
  return value.one_of(std::array{"auto", "simple", "packets"});
}

std::string json_file(const FlagValue& value) {
  if (!value.text.ends_with(".json")) throw value.refused("not the name of a JSON file", "a name that ends in .json");
  return value.text;
}

constexpr const char* kTransport = "--transport";
constexpr const char* kNcclGroup = "nccl-tests' flags";
constexpr const char* kOwnGroup = "Beyond nccl-tests";
constexpr const char* kRefusedGroup = "nccl-tests' flags that have no meaning here: only their defaults are accepted";

const std::array kNcclFlags{
    Flag{"-t,--nthreads", "1", "threads per process; ranks = processes x t x g",
         [](Reading& r, const FlagValue& v) { r.threads = integer(v, 1, kMaxThreads); }},
    Flag{"-g,--ngpus", "1", "GPUs per thread, each a rank; ranks = processes x t x g",
         [](Reading& r, const FlagValue& v) { r.gpus = integer(v, 1, kMaxThreads); }},
    Flag{"-b,--minbytes", "32M", "smallest size; K, M, G are 1024-based",
         [](Reading& r, const FlagValue& v) { r.flags.sizes.min_bytes = v.size_bytes(); }},
    Flag{"-e,--maxbytes", "32M", "largest size",
         [](Reading& r, const FlagValue& v) { r.flags.sizes.max_bytes = v.size_bytes(); }},
    Flag{"-i,--stepbytes", "1M", "step between sizes",
         [](Reading& r, const FlagValue& v) { r.flags.sizes.step_bytes = v.size_bytes(); }},
    Flag{"-f,--stepfactor", "1", "factor between sizes; if above 1, -i is ignored",
         [](Reading& r, const FlagValue& v) { r.flags.sizes.step_factor = integer(v, 1, 1 << 20); }},
    Flag{"-n,--iters", "20", "timed iterations",
         [](Reading& r, const FlagValue& v) { r.flags.iterations = integer(v, 1, kMaxCalls); }},
    Flag{"-w,--warmup_iters", "1", "iterations before the timed ones",
         [](Reading& r, const FlagValue& v) { r.flags.warmup_iterations = integer(v, 0, kMaxCalls); }},
    Flag{"-m,--agg_iters", "1", "calls in one timed iteration",
         [](Reading& r, const FlagValue& v) { r.flags.calls_per_iteration = integer(v, 1, kMaxCalls); }},
    Flag{"-N,--run_cycles", "1", "times to repeat the whole sweep",
         [](Reading& r, const FlagValue& v) { r.flags.run_cycles = integer(v, 1, kMaxCalls); }},
    Flag{
        "-a,--average", "1",
        "time of a call: 0 the first thread's, 1 mean, 2 min, 3 max over threads; a thread's time is its slowest GPU's",
        [](Reading& r, const FlagValue& v) { r.flags.time_of = time_of(v); }},
    Flag{"-o,--op", "sum", "operations, or all: sum prod max min avg",
         [](Reading& r, const FlagValue& v) {
           r.flags.ops = named_list(v, core::all_reduce_ops(), core::parse_reduce_op);
         }},
    Flag{"-d,--datatype", "float", "element types, or all",
         [](Reading& r, const FlagValue& v) { r.flags.dtypes = named_list(v, core::all_dtypes(), core::parse_dtype); }},
    Flag{"-r,--root", "0", "root ranks; -1 or all: every rank",
         [](Reading& r, const FlagValue& v) { r.flags.roots = root_list(v); }},
    Flag{"-c,--check", "1", "0: do not verify the results; otherwise every timed call is verified",
         [](Reading& r, const FlagValue& v) { r.flags.check = v.integer(0, kMaxCalls) != 0; }},
    Flag{"-I,--per_iter_timing", "0", "1: print columns i_min i_max i_p99 i_cv% of the timed iterations",
         [](Reading& r, const FlagValue& v) { r.flags.per_iteration_timing = v.yes_or_no(); }},
    Flag{"-K,--per_iter_skip", "0", "skip the first N iterations in the columns of -I",
         [](Reading& r, const FlagValue& v) { r.flags.per_iteration_skip = integer(v, 0, kMaxCalls); }},
    Flag{"-S,--report_timestamps", "0", "1: print a column with the time of day",
         [](Reading& r, const FlagValue& v) { r.flags.timestamps = v.yes_or_no(); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait fails; 0: the default, because no wait is unlimited",
         [](Reading& r, const FlagValue& v) {
           const int seconds = integer(v, 0, 86400);
           r.flags.timeout_s = seconds == 0 ? SweepFlags{}.timeout_s : seconds;
         }},
    Flag{"-J,--output_file", "",
         "file for nccl-tests' JSON, named *.json; if it exists, .0, .1, ... is added to the name",
         [](Reading& r, const FlagValue& v) { r.flags.nccl_json_file = json_file(v); }},
    Flag{"-u,--unalign", "0", "elements by which both buffers are shifted",
         [](Reading& r, const FlagValue& v) { r.flags.unalign_elems = integer(v, 0, 1 << 20); }},
    Flag{"-p,--parallel_init", "0", "no effect: each rank always initializes in its own thread",
         [](Reading&, const FlagValue& v) { v.yes_or_no(); }},
    Flag{"-z,--blocking", "0", "on GPUs, wait for: 1 each call and the other ranks, 2 each call, 3 each iteration",
         [](Reading& r, const FlagValue& v) { r.flags.device.blocking = static_cast<Blocking>(v.integer(0, 3)); }},
    Flag{"-G,--cudagraph", "0", "on GPUs: capture the iterations into a CUDA graph, and time this many replays",
         [](Reading& r, const FlagValue& v) { r.flags.device.graph_launches = integer(v, 0, kMaxGraphLaunches); }},
    Flag{"-R,--local_register", "0", "with --transport nccl, buffers are registered: 1 locally, 2 as symmetric windows",
         [](Reading& r, const FlagValue& v) { r.flags.device.registration = integer(v, 0, 2); }},
    Flag{"-x,--cta_policy", "0",
         "with --transport nccl, policy for thread blocks: 0 speed, 1 efficiency, 2 none where possible",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.cta_policy = nonzero(integer(v, 0, 2)); }},
    Flag{"-M,--memory,--memory_report", "0", "on GPUs, 1: report the memory used by initialization, buffers and calls",
         [](Reading& r, const FlagValue& v) { r.flags.device.reports_memory = v.yes_or_no(); }},
    Flag{"-y,--stream_null", "0", "on GPUs, 1: use CUDA's NULL stream instead of a stream per rank",
         [](Reading& r, const FlagValue& v) { r.flags.device.null_stream = v.yes_or_no(); }},
    Flag{"-C,--report_cputime", "0", "on GPUs, 1: the time column shows the host's time to enqueue a call",
         [](Reading& r, const FlagValue& v) { r.flags.device.report_cpu_time = v.yes_or_no(); }},
};

const std::array kOwnFlags{
    Flag{"--ranks", "4", "numbers of ranks, instead of -t and -g",
         [](Reading& r, const FlagValue& v) {
           r.flags.ranks = integer_list(v, 1, kMaxRanks);
           r.flags.ranks_given = true;
         }},
    Flag{"--algo", "auto", "algorithms, as name or name:option=value, or all; auto: from the machine's measured table",
         [](Reading& r, const FlagValue& v) { r.flags.algorithms = text_list(v); }},
    Flag{"--plan", "",
         "files with plans of your own, as text or MSCCL XML (docs/plan_format.md): each is proved, run and verified",
         [](Reading& r, const FlagValue& v) { r.flags.plan_files = text_list(v); }},
    Flag{"--protocol", "auto", "with --transport cuda: auto (by size), simple, or packets (for plans that allow them)",
         [](Reading& r, const FlagValue& v) { r.flags.device.protocol = protocol(v); }},
    Flag{"--blocks", "0",
         "with --transport cuda: maximum number of thread blocks per rank's kernel; 0: 32 if a rank has a GPU to "
         "itself, else its share of two blocks per multiprocessor",
         [](Reading& r, const FlagValue& v) { r.flags.device.blocks = integer(v, 0, kMaxBlocks); }},
    Flag{"--min-ctas", "", "with --transport nccl: NCCL's minCTAs, the minimum number of thread blocks per call",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.min_ctas = integer(v, 1, kMostCtas); }},
    Flag{"--max-ctas", "", "with --transport nccl: NCCL's maxCTAs, the maximum number of thread blocks per call",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.max_ctas = integer(v, 1, kMostCtas); }},
    Flag{"--cga-cluster-size", "",
         "with --transport nccl: NCCL's cgaClusterSize, thread blocks per cluster; 0: no clusters",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.cga_cluster_size = integer(v, 0, kMostOfACluster); }},
    Flag{"--net", "", "with --transport nccl: NCCL's netName, its network between hosts, such as Socket or IB",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.net_name = net_name(v); }},
    Flag{"--split-share", "",
         "with --transport nccl: NCCL's splitShare, 1: communicators share their parent's resources",
         [](Reading& r, const FlagValue& v) { r.flags.device.nccl.split_share = v.yes_or_no() ? 1 : 0; }},
    Flag{"--machine", "", "with --transport simulated: the machine, a name from simulate --list or a description file",
         [](Reading& r, const FlagValue& v) { r.flags.machine = file_name(v); }},
    Flag{"--link", "", "emulated link: latency_us=X,gbps=Y",
         [](Reading& r, const FlagValue& v) { r.flags.link = v.checked_by(transports::parse_link); }},
    Flag{"--json", "", "file for records (docs/record_format.md)",
         [](Reading& r, const FlagValue& v) { r.flags.json_file = file_name(v); }},
    Flag{"--time-budget", "0", "seconds for the whole run; fewer iterations are timed when they run out",
         [](Reading& r, const FlagValue& v) { r.flags.time_budget_s = v.text == "0" ? 0 : v.number(0, 1e9); }},
    Flag{"--seed", "1", "seed of the inputs",
         [](Reading& r, const FlagValue& v) {
           r.flags.seed = static_cast<std::uint64_t>(v.integer(0, std::numeric_limits<std::int64_t>::max()));
         }},
};

// A flag of nccl-tests that is accepted at its default only, and the reason.
struct RefusedFlag {
  const char* names;
  const char* default_text;
  const char* why;
};

constexpr std::array kRefusedFlags{
    RefusedFlag{"-D,--device_implementation", "0",
                "it selects nccl-tests' own kernels on NCCL's device API; use --transport cuda for Lockstep's kernels"},
    RefusedFlag{"-V,--device_cta_count", "16",
                "it sets the thread blocks of -D's kernels; --blocks limits Lockstep's, --max-ctas NCCL's"},
};

void declare(CommandLine& line, SweepFlags& flags) {
  declare_all(line, kNcclFlags, kNcclGroup);
  declare_all(line, kOwnFlags, kOwnGroup);
  line.add(
      kTransport, "local",
      "transport between ranks: " + fmt::format("{}", fmt::join(transports(), ", ")) + "; default under mpirun: mpi",
      kOwnGroup);
  line.add_switch("--processes", flags.processes, "fork a process per local rank instead of starting threads",
                  kOwnGroup);
  line.add_switch("--explain", flags.explain, "print columns for algorithm, steps, wire bytes and predicted time",
                  kOwnGroup);
  line.add_switch("--print-plan", flags.print_plan, "print the plans that would run, and exit", kOwnGroup);
  line.add_switch("--print-msccl", flags.print_msccl, "print the one plan that would run as MSCCL XML, and exit",
                  kOwnGroup);
  line.add_switch("--draw", flags.draw,
                  "draw the plans that would run, one row per rank and one column per round, and exit", kOwnGroup);
  line.add_switch("--serve", flags.serve,
                  "worker mode for ci/gate.py: run the rows requested on standard input (bench/serve/orders.h)",
                  kOwnGroup);
  line.add_switch("--stats", flags.stats, "print columns p50 p95 p99 of the timed iterations", kOwnGroup);
  for (const RefusedFlag& flag : kRefusedFlags) line.add(flag.names, flag.default_text, flag.why, kRefusedGroup);
}

void refuse_all(const CommandLine& line) {
  for (const RefusedFlag& flag : kRefusedFlags) {
    const auto value = line.value(flag.names);
    if (value && value->text != flag.default_text) throw value->refused(flag.why, flag.default_text);
  }
}

void decide_ranks(Reading& reading) {
  SweepFlags& flags = reading.flags;
  if (!reading.threads && !reading.gpus) return;
  if (flags.ranks_given) throw core::usage_error("--ranks together with -t or -g; allowed: one of the two ways");
  const std::int64_t ranks = std::int64_t{reading.threads.value_or(1)} * reading.gpus.value_or(1);
  if (ranks > kMaxThreads) {
    throw core::usage_error(fmt::format("-t times -g is {} ranks; allowed: at most {}", ranks, kMaxThreads));
  }
  flags.ranks = {static_cast<int>(ranks)};
  flags.ranks_given = true;
  flags.threads = reading.threads.value_or(1);
  flags.gpus_per_thread = reading.gpus.value_or(1);
}

void check_sizes(const SizeRange& sizes) {
  if (sizes.min_bytes > sizes.max_bytes) {
    throw core::usage_error(fmt::format("-b,--minbytes {} is above -e,--maxbytes {}; allowed: at most that",
                                        sizes.min_bytes, sizes.max_bytes));
  }
  if (sizes.min_bytes == sizes.max_bytes) return;
  if (sizes.step_factor > 1 && sizes.min_bytes == 0) {
    throw core::usage_error("-b,--minbytes 0: multiplying by -f never leaves it; allowed: above 0, or -i without -f");
  }
  if (sizes.step_factor == 1 && sizes.step_bytes == 0) {
    throw core::usage_error("-i,--stepbytes 0: the sizes would never end; allowed: above 0, or -f above 1");
  }
}

// Operations and roots are one row each where the collective has none, as in nccl-tests.
void drop_what_the_kind_lacks(SweepFlags& flags) {
  if (!collectives::has_op(flags.kind)) flags.ops = {core::ReduceOp::sum};
  if (!collectives::has_root(flags.kind)) flags.roots = {0};
}

// Calls that are enqueued without a wait in between are limited, as a full GPU queue blocks without a deadline.
void check_calls_on_gpus(const SweepFlags& flags) {
  constexpr int kMostCalls = 256;
  if (flags.calls_per_iteration <= kMostCalls || flags.device.graph_launches > 0) return;
  const auto on_gpu = std::find_if(flags.transports.begin(), flags.transports.end(), on_gpus);
  if (on_gpu == flags.transports.end()) return;
  throw core::usage_error(fmt::format(
      "-m,--agg_iters {} with --transport {}: a GPU's queue cannot hold that many calls; allowed: 1 to {}, or -G",
      flags.calls_per_iteration, *on_gpu, kMostCalls));
}

bool only_local(const SweepFlags& flags) {
  return std::all_of(flags.transports.begin(), flags.transports.end(), [](const auto& t) { return t == "local"; });
}

bool is_simulated(const SweepFlags& flags) {
  return std::find(flags.transports.begin(), flags.transports.end(), kSimulated) != flags.transports.end();
}

// Refuses flags that have no meaning where nothing runs.
void check_simulated(const SweepFlags& flags) {
  if (!is_simulated(flags)) {
    if (!flags.machine.empty()) {
      throw core::usage_error("--machine " + flags.machine +
                              ": describes simulated ranks; allowed with --transport simulated");
    }
    const int most = *std::max_element(flags.ranks.begin(), flags.ranks.end());
    if (most > kMaxThreads) {
      throw core::usage_error(
          fmt::format("--ranks {}: allowed: 1 to {}, or {} with --transport simulated", most, kMaxThreads, kMaxRanks));
    }
    return;
  }
  const auto refuse = [](bool is_set, const char* flag, const char* why) {
    if (is_set)
      throw core::usage_error(fmt::format("{} with --transport simulated: {}; allowed: without it", flag, why));
  };
  if (flags.transports.size() > 1) {
    throw core::usage_error(
        "--transport simulated together with others: its times are not measurements; allowed: simulated alone");
  }
  if (flags.machine.empty()) {
    throw core::usage_error(
        "--transport simulated needs --machine; allowed: a name that simulate --list shows, or a file");
  }
  refuse(flags.processes, "--processes", "no ranks run");
  refuse(!flags.link.empty(), "--link", "links are the machine's");
  refuse(flags.stats || flags.per_iteration_timing, "--stats or -I", "every call takes the same time");
  refuse(flags.unalign_elems != 0, "-u,--unalign", "there are no buffers");
  refuse(flags.serve, "--serve", "there is nothing to time");
  refuse(flags.kind == collectives::Kind::all_to_all_v, "alltoallv_perf", "the simulator assumes chunks of one size");
}

void check_together(const SweepFlags& flags, bool ranks_known) {
  check_simulated(flags);
  check_sizes(flags.sizes);
  check_calls_on_gpus(flags);
  if (ranks_known) roots_at(flags, *std::min_element(flags.ranks.begin(), flags.ranks.end()));
  if (flags.per_iteration_skip >= flags.iterations) {
    throw core::usage_error(fmt::format("-K,--per_iter_skip {}: leaves none of {} iterations; allowed: 0 to {}",
                                        flags.per_iteration_skip, flags.iterations, flags.iterations - 1));
  }
  if (flags.per_iteration_timing && flags.device.graph_launches > 0) {
    throw core::usage_error(
        "-I,--per_iter_timing with -G: a graph's iterations are timed together; allowed: one of the two");
  }
  if (flags.print_msccl && (flags.print_plan || flags.draw)) {
    throw core::usage_error(
        "--print-msccl with --print-plan or --draw: the output would not be XML; allowed: one of these flags");
  }
  if (flags.only_shows_plans() && !(flags.json_file.empty() && flags.nccl_json_file.empty())) {
    throw core::usage_error(
        "--print-plan, --print-msccl or --draw with a file for records: nothing is run; allowed: one of the two");
  }
  if (flags.processes && !only_local(flags)) {
    throw core::usage_error("--processes forks local ranks; allowed with --transport local, others have mpirun's");
  }
}

struct Program {
  std::string_view name;  // nccl-tests' name
  collectives::Kind kind;
};

constexpr std::array kPrograms{
    Program{"all_reduce_perf", collectives::Kind::all_reduce},
    Program{"reduce_scatter_perf", collectives::Kind::reduce_scatter},
    Program{"all_gather_perf", collectives::Kind::all_gather},
    Program{"broadcast_perf", collectives::Kind::broadcast},
    Program{"reduce_perf", collectives::Kind::reduce},
    Program{"alltoall_perf", collectives::Kind::all_to_all},
    Program{"alltoallv_perf", collectives::Kind::all_to_all_v},
    Program{"sendrecv_perf", collectives::Kind::send_recv},
    Program{"gather_perf", collectives::Kind::gather},
    Program{"scatter_perf", collectives::Kind::scatter},
    Program{"hypercube_perf", collectives::Kind::hypercube},
};

}  // namespace

std::vector<int> roots_at(const SweepFlags& flags, int num_ranks) {
  std::vector<int> roots = flags.roots;
  for (int r = 0; flags.roots.empty() && r < num_ranks; ++r) roots.push_back(r);
  for (int root : roots) {
    if (root < num_ranks) continue;
    throw core::usage_error(fmt::format("-r,--root {}: there is no such rank among {}; allowed: 0 to {}, -1 for all",
                                        root, num_ranks, num_ranks - 1));
  }
  return roots;
}

SweepFlags parse_sweep_flags(collectives::Kind kind, int argc, const char* const* argv, const std::string& transport) {
  Reading reading;
  SweepFlags& flags = reading.flags;
  flags.kind = kind;
  flags.set_command(argc, argv);

  CommandLine line(fmt::format("{}: times {} and verifies every result.", flags.program, collectives::name_of(kind)));
  declare(line, flags);
  line.parse(argc, argv);
  read_all(line, kNcclFlags, reading);
  read_all(line, kOwnFlags, reading);
  flags.transports = {transport};
  if (const auto value = line.value(kTransport)) flags.transports = transport_list(*value);
  refuse_all(line);
  decide_ranks(reading);
  drop_what_the_kind_lacks(flags);
  if (!flags.plan_files.empty() && !line.value("--algo")) flags.algorithms.clear();
  // With -t and -g the number of processes is known only later, except for ranks of this process alone.
  const bool ranks_known = (flags.ranks_given && flags.threads == 0) ||
                           (only_local(flags) && (flags.ranks_given || flags.plan_files.empty()));
  check_together(flags, ranks_known);
  check_device_flags(flags.device, flags.transports);
  return flags;
}

collectives::Kind kind_of_program(std::string_view program) {
  const auto* const found =
      std::find_if(kPrograms.begin(), kPrograms.end(), [&](const Program& known) { return known.name == program; });
  if (found == kPrograms.end()) {
    std::vector<std::string_view> names;
    for (const Program& known : kPrograms) names.push_back(known.name);
    throw core::usage_error(
        fmt::format("called as \"{}\", an unknown program name; allowed: {}", program, fmt::join(names, ", ")));
  }
  return found->kind;
}

std::string_view program_of_kind(collectives::Kind kind) {
  const auto* const found =
      std::find_if(kPrograms.begin(), kPrograms.end(), [&](const Program& program) { return program.kind == kind; });
  LOCKSTEP_CHECK(found != kPrograms.end(), "a collective without a program");
  return found->name;
}

std::optional<double> min_busbw_of_environment() {
  const char* const text = std::getenv("NCCL_TESTS_MIN_BW");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return FlagValue{"NCCL_TESTS_MIN_BW", text}.number(0, 1e9);
}

}  // namespace lockstep::sweep
