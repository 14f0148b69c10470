#include <filesystem>

#include "bench/suite/suite.h"

namespace lockstep::suite {
namespace {

// A real text where Debian has put one, else the synthetic one.
std::string data_words() {
  const std::string licence = "/usr/share/common-licenses/GPL-3";
  std::error_code none;
  return std::filesystem::is_regular_file(licence, none) ? " --data " + licence : "";
}

}  // namespace

// Send/recv comes with every kind of link, as the report fits alpha and beta from it. The emulated link is a 10 Gbit/s
// network with 20 us latency: slow enough that two cores can play eight ranks. Schedules are simulated and emulated
// alike, so that the report shows one above the other. A small model is trained on two ranks, and its step is put
// together from its pieces. Layers are shared out over two ranks on the emulated link, words that do not divide too.
Suite quick_suite() {
  const std::string link = " --link latency_us=20,gbps=1.25";
  const std::string all_reduces =
      " --algo ring,double_tree,binary_tree,tree,recursive_doubling,halving_doubling,one_shot,two_shot";
  const std::string pipelines =
      " --schedule gpipe,1f1b,interleaved,zb_h1,zb_h2,zb_v,chimera,dualpipe --stages 2,4,8 --microbatches 16 --t-comm "
      "0.1";
  const std::string overlaps = " --ranks 4 --zero 0,1,3 --bucket-cap-mb 1,25,100,1000";
  return {
      {"01-sendrecv", "sendrecv_perf --ranks 2,4,8 -b 64 -e 4M -f 4 -w 2 --algo direct", 1},
      {"02-all_reduce", "all_reduce_perf --ranks 2,4,8 -b 8 -e 16M -f 8 -w 2 --explain" + all_reduces, 5},
      {"03-all_gather", "all_gather_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all", 1},
      {"04-reduce_scatter", "reduce_scatter_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all", 1},
      {"05-broadcast", "broadcast_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all", 1},
      {"06-alltoall", "alltoall_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all", 1},
      {"07-sendrecv-emulated", "sendrecv_perf --ranks 8 -b 64 -e 4M -f 8 -w 1 --algo direct" + link, 1},
      {"08-all_reduce-emulated",
       "all_reduce_perf --ranks 8 -b 64 -e 4M -f 4 -w 1 --explain"
       " --algo ring,double_tree,tree,recursive_doubling,halving_doubling" +
           link,
       3},
      {"09-schedules", "pipeline_perf --schedule all --stages 4 --microbatches 8,32", 0.1},
      {"10-schedules-simulated", "pipeline_perf --mode simulated" + pipelines, 0.1},
      {"11-schedules-emulated", "pipeline_perf --mode emulated" + pipelines, 1},
      {"12-overlap-simulated", "overlap_perf --mode simulated" + overlaps, 0.1},
      {"13-overlap-emulated", "overlap_perf --mode emulated" + overlaps, 1},
      {"14-plan", "simulate plan --model gpt3-175b --machine dgx-a100 --gpus 256 --batch 512", 0.1},
      {"15-step", "simulate --model gpt3-175b --machine dgx-a100 --layout tp=8,pp=8,dp=4,batch=64,sp=yes,zero=1", 0.1},
      {"16-training", "mini_train --dp 2 --batch 4 --steps 150 --lr 2e-3 --validate-every 50" + data_words(), 1},
      {"17-scaling",
       "scaling --mode weak --batch 4 --steps 4 --time-budget 8"
       " --layouts dp=2;dp=2,zero=3;tp=2;pp=2,microbatches=4",
       1.5},
      {"18-layers", "tp_linear_bench --batch 2 --turns 7 --warmup 1 --vocabulary 1021 --tiles 1,2,4" + link, 0.2},
  };
}

}  // namespace lockstep::suite
