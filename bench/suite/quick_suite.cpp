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
// network with 20 us latency: slow enough that two cores can play eight ranks. Kernels are those of the step that
// mini_train takes, at shapes that fit a cache and at one that does not. Schedules are simulated and emulated alike, so
// that the report shows one above the other. A small model is trained on two ranks, its step is put together from its
// pieces, and buckets and ZeRO stages are timed in steps of a smaller one. Layers are shared out over two ranks on the
// emulated link, words that do not divide too.
Suite quick_suite() {
  const std::string link = " --link latency_us=20,gbps=1.25";
  const std::string share = " --time-budget {seconds}";
  const std::string all_reduces =
      " --algo ring,double_tree,binary_tree,tree,recursive_doubling,halving_doubling,one_shot,two_shot";
  const std::string kernels =
      "^(gemm_(fwd|wgrad)/.*/N1024_C256_O1024/|attention_.*/B8_H4_T128|gelu_fwd/.*/B8_T128|layernorm_.*/f32/B8_T128|"
      "softmax_fwd/f32/R4096|cross_entropy/f32/R1024|adamw/f32/N(1|16)M/|reduction/f32/sum_k2_16MiB)";
  const std::string small_steps = " --dp 2 --batch 1 --length 64 --time-budget 2";
  const std::string pipelines =
      " --schedule gpipe,1f1b,interleaved,zb_h1,zb_h2,zb_v,chimera,dualpipe --stages 2,4,8 --microbatches 16 --t-comm "
      "0.1";
  const std::string overlaps = " --ranks 4 --zero 0,1,3 --bucket-cap-mb 1,25,100,1000";
  return {
      {"01-sendrecv", 3, "sendrecv_perf --ranks 2,4,8 -b 64 -e 4M -f 4 -w 2 --algo direct" + share},
      {"02-all_reduce", 15, "all_reduce_perf --ranks 2,4,8 -b 8 -e 16M -f 8 -w 2 --explain" + all_reduces + share},
      {"03-all_gather", 1, "all_gather_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all" + share},
      {"04-reduce_scatter", 1, "reduce_scatter_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all" + share},
      {"05-broadcast", 1, "broadcast_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all" + share},
      {"06-alltoall", 1, "alltoall_perf --ranks 4 -b 1K -e 16M -f 16 -w 2 --explain --algo all" + share},
      {"07-sendrecv-emulated", 1, "sendrecv_perf --ranks 8 -b 64 -e 4M -f 8 -w 1 --algo direct" + link + share},
      {"08-all_reduce-emulated", 3,
       "all_reduce_perf --ranks 8 -b 64 -e 4M -f 4 -w 1 --explain"
       " --algo ring,double_tree,tree,recursive_doubling,halving_doubling" +
           link + share},
      {"09-kernels", 11, "kernels_bench --benchmark_filter=" + kernels + share},
      {"10-buckets", 6, "ddp_overlap_bench --bucket-cap-mb 0,0.25,1,4 --steps 40" + small_steps + link},
      {"11-zero", 6, "zero_bench --microbatches 2 --dtype f32 --steps 40" + small_steps},
      {"12-layers", 4, "tp_linear_bench --batch 2 --turns 7 --warmup 1 --vocabulary 1021 --tiles 1,2,4" + link},
      {"13-schedules", 0.1, "pipeline_perf --schedule all --stages 4 --microbatches 8,32"},
      {"14-schedules-simulated", 0.1, "pipeline_perf --mode simulated" + pipelines},
      {"15-schedules-emulated", 4, "pipeline_perf --mode emulated" + pipelines},
      {"16-overlap-simulated", 0.1, "overlap_perf --mode simulated" + overlaps},
      {"17-overlap-emulated", 2, "overlap_perf --mode emulated" + overlaps},
      {"18-plan", 1, "simulate plan --model gpt3-175b --machine dgx-a100 --gpus 256 --batch 512"},
      {"19-step", 0.1, "simulate --model gpt3-175b --machine dgx-a100 --layout tp=8,pp=8,dp=4,batch=64,sp=yes,zero=1"},
      {"20-training", 8, "mini_train --dp 2 --batch 4 --steps 150 --lr 2e-3 --validate-every 50" + data_words()},
      {"21-scaling", 5,
       "scaling --mode weak --batch 4 --steps 4 --time-budget 8 --layouts dp=2;dp=2,zero=3;tp=2;pp=2,microbatches=4"},
  };
}

}  // namespace lockstep::suite
