#include "bench/simulate/published.h"

#include "bench/simulate/validation_cases.h"
#include "core/error.h"
#include "simulator/validation/validation.h"

namespace lockstep::simulate {
namespace {

// Options of those Megatron-LM runs; equal to those in simulator/validation/cases.json.
constexpr const char* kMegatron =
    "recompute=full,flash=no,grad_dtype=bf16,overlap_tp=no,scatter_gather=yes,bucket_mb=0,overlap_grads=no";

PublishedTable weak() {
  PublishedTable table{"sc21-weak", "selene", "Narayanan et al. 2021, arXiv:2104.04473, table 1", {}};
  for (const auto& one : simulator::parse_cases(validation_cases(), "cases.json").cases) {
    if (one.table == "sc21" && one.measure == "tflops_a_gpu") {
      table.rows.push_back({"models grow with GPUs", one.model, one.layout, one.published});
    }
  }
  return table;
}

PublishedTable strong() {
  PublishedTable table{"sc21-strong", "selene", "Narayanan et al. 2021, arXiv:2104.04473, table 2", {}};
  const auto add = [&](const std::string& series, const std::string& model, const std::string& layout, double tflops) {
    table.rows.push_back({series, model, layout, tflops});
  };
  const auto split = [](const std::string& sizes) { return sizes + ",microbatch=1," + kMegatron; };
  add("TP+PP+DP, 175B", "gpt3-175b", split("tp=8,pp=12,dp=4,batch=1536"), 153);
  add("TP+PP+DP, 175B", "gpt3-175b", split("tp=8,pp=12,dp=8,batch=1536"), 149);
  add("TP+PP+DP, 175B", "gpt3-175b", split("tp=8,pp=12,dp=16,batch=1536"), 141);
  add("TP+PP+DP, 530B", "megatron-529.6b", split("tp=8,pp=35,dp=2,batch=2240"), 171);
  add("TP+PP+DP, 530B", "megatron-529.6b", split("tp=8,pp=35,dp=4,batch=2240"), 167);
  add("TP+PP+DP, 530B", "megatron-529.6b", split("tp=8,pp=35,dp=8,batch=2240"), 159);
  const auto sharded = [](const std::string& sizes) { return sizes + ",batch=1536,zero=3,recompute=full,flash=no"; };
  add("ZeRO-3, 175B", "gpt3-175b", sharded("dp=384,microbatch=4"), 144);
  add("ZeRO-3, 175B", "gpt3-175b", sharded("dp=768,microbatch=2"), 88);
  add("ZeRO-3, 175B", "gpt3-175b", sharded("dp=1536,microbatch=1"), 44);
  return table;
}

// A Llama model of 3.6e9 parameters. The vocabulary follows from the published TFLOP/s and tokens/s; one microbatch per
// step is assumed.
PublishedTable tensor() {
  const std::string model =
      "layers=28,hidden=3072,heads=32,ffn_hidden=8192,vocabulary=131072,sequence=4096,gated=yes,biases=no,norm=rms,"
      "learned_positions=no,dropout=no";
  PublishedTable table{"nanotron-tp", "dgx-h100", "nanotron, scripts/scaling_benchmarks.py, comments (2411b022)", {}};
  const auto add = [&](const std::string& sizes, double tflops) {
    table.rows.push_back({"tensor parallel", model, sizes + ",sp=yes", tflops});
  };
  add("tp=2,microbatch=3,batch=3", 363.66);
  add("tp=4,microbatch=9,batch=9", 345.51);
  add("tp=8,microbatch=18,batch=18", 279.5);
  add("tp=16,microbatch=40,batch=40", 158.1);
  add("tp=32,microbatch=90,batch=90", 92.66);
  return table;
}

std::vector<PublishedTable> all() {
  return {weak(), strong(), tensor()};
}

}  // namespace

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const PublishedTable& table : all()) names.push_back(table.name);
  return names;
}

PublishedTable published_table(std::string_view name) {
  std::string names;
  for (PublishedTable& table : all()) {
    if (table.name == name) return table;
    names += " " + table.name;
  }
  throw core::usage_error("'" + std::string(name) + "' is not a published table; allowed:" + names);
}

}  // namespace lockstep::simulate
