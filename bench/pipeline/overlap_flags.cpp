#include "bench/pipeline/overlap_flags.h"

#include <array>

namespace lockstep::pipeline {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<OverlapFlags>;

constexpr double kLongestMs = 1e6;
constexpr const char* kWhat = "Step";
constexpr const char* kHow = "Costs";
constexpr const char* kOutput = "Output";

std::vector<double> caps_of(const FlagValue& value) {
  std::vector<double> caps;
  for (const FlagValue& part : value.list()) caps.push_back(part.number(0, 1e6));
  return caps;
}

transports::LinkSpec link_of(const FlagValue& value) {
  return transports::parse_link(value.text);
}

const std::array kFlagsOfWhat{
    Flag{"--mode", "simulated", "simulated: in virtual time; emulated: in wall-clock time on emulated devices",
         [](OverlapFlags& f, const FlagValue& v) {
           f.mode = mode_of(v);
           if (f.mode == Mode::real)
             throw v.refused("not a mode here (ddp_overlap_bench runs real kernels)", "simulated emulated");
         }},
    Flag{"--ranks", "4", "replicas of the model, a list",
         [](OverlapFlags& f, const FlagValue& v) { f.replicas = integer_list(v, 1, 256); }},
    Flag{"--zero", "0",
         "ZeRO stages, a list: 0 shards nothing (all-reduce of gradients), 1 the optimizer's state, 2 gradients too, 3 "
         "parameters too",
         [](OverlapFlags& f, const FlagValue& v) { f.zero_stages = integer_list(v, 0, 3); }},
    Flag{"--bucket-cap-mb", "25", "MiB of gradients per bucket, a list; the first bucket has at most 1 MiB",
         [](OverlapFlags& f, const FlagValue& v) { f.bucket_caps_mb = caps_of(v); }},
    Flag{"--layers", "12", "layers of the model",
         [](OverlapFlags& f, const FlagValue& v) { f.layers = integer(v, 1, 10000); }},
    Flag{"--microbatches", "1", "microbatches per step; with --zero 0 and 1 gradients are sent after the last one only",
         [](OverlapFlags& f, const FlagValue& v) { f.microbatches = integer(v, 1, 10000); }},
    Flag{"--prefetch", "1", "layers that are gathered ahead of their use, with --zero 3",
         [](OverlapFlags& f, const FlagValue& v) { f.prefetch = integer(v, 0, 10000); }},
};

const std::array kFlagsOfCosts{
    Flag{"--t-f", "1", "ms of a layer's forward",
         [](OverlapFlags& f, const FlagValue& v) { f.forward_ms = v.number(0, kLongestMs); }},
    Flag{"--t-b", "2", "ms of a layer's backward",
         [](OverlapFlags& f, const FlagValue& v) { f.backward_ms = v.number(0, kLongestMs); }},
    Flag{"--t-opt", "0", "ms of the optimizer",
         [](OverlapFlags& f, const FlagValue& v) { f.optimizer_ms = v.number_from(0, kLongestMs); }},
    Flag{"--bytes-a-layer", "28M", "bytes of gradients per layer, and as many of parameters",
         [](OverlapFlags& f, const FlagValue& v) { f.bytes_a_layer = v.size_bytes(); }},
    Flag{"--tensors-a-layer", "4",
         "equal tensors per layer that hold these bytes; a tensor is never split over two buckets",
         [](OverlapFlags& f, const FlagValue& v) { f.tensors_a_layer = integer(v, 1, 10000); }},
    Flag{"--algo", "ring", "algorithm of the collectives; one with a single lane",
         [](OverlapFlags& f, const FlagValue& v) { f.algorithm = v.text; }},
    Flag{"--link", "latency_us=20,gbps=12.5", "link of each rank, in each direction; gbps is 1e9 bytes per second",
         [](OverlapFlags& f, const FlagValue& v) { f.link = link_of(v); }},
    Flag{"--repeat", "5", "runs per row, with --mode emulated",
         [](OverlapFlags& f, const FlagValue& v) { f.repeat = integer(v, 1, 10000); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait of an emulated run fails",
         [](OverlapFlags& f, const FlagValue& v) { f.timeout_s = integer(v, 1, 86400); }},
};

const std::array kFlagsOfOutput{
    program::json_flag<OverlapFlags>(),
    Flag{"--trace", "", "file for a trace that ui.perfetto.dev opens; for a single row",
         [](OverlapFlags& f, const FlagValue& v) { f.trace_file = file_name(v); }},
};

}  // namespace

OverlapFlags parse_overlap_flags(int argc, const char* const* argv) {
  OverlapFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": how much of the communication of gradients and parameters is hidden behind kernels.");
  declare_all(line, kFlagsOfWhat, kWhat);
  declare_all(line, kFlagsOfCosts, kHow);
  declare_all(line, kFlagsOfOutput, kOutput);
  line.parse(argc, argv);
  read_all(line, kFlagsOfWhat, flags);
  read_all(line, kFlagsOfCosts, flags);
  read_all(line, kFlagsOfOutput, flags);
  return flags;
}

}  // namespace lockstep::pipeline
