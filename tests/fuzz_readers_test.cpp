// Every format that a user hands to a program: valid examples, changed at random (testing/core/fuzz.h). CI tries a
// few thousand inputs of each; LOCKSTEP_FUZZ_INPUTS=1000000 tries as many as a change of a reader should see.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/libraries/nccl_rules.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/text.h"
#include "collectives/transports/paced_link.h"
#include "collectives/tuning/tuning.h"
#include "core/error.h"
#include "core/options.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/traces.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/clocks.h"
#include "simulator/predict/predict.h"
#include "simulator/prices/prices.h"
#include "testing/core/fixtures.h"
#include "testing/core/fuzz.h"
#include "trainer/checkpoint/hugging_face.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/corpus.h"
#include "trainer/sync/sync_options.h"
#include "trainer/tokens/tokenizer.h"
#include "workload/compression.h"
#include "workload/grid_product.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep {
namespace {

using core::FuzzedReader;
using Texts = std::vector<std::string>;

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  LOCKSTEP_CHECK(file.good(), path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file with this content; the same one each time, as a test reads one at a time.
std::string file_of(const std::string& name, const std::string& content) {
  static const core::TemporaryFolder kFolder;
  const std::string path = kFolder / name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// ---- Schedules.

Texts schedule_texts() {
  Texts texts;
  for (const char* const name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}) {
    const auto& entry = schedules::entry_named(name);
    const schedules::PipelineShape shape{2, 4, entry.takes_chunks ? 2 : 1};
    const schedules::Schedule made = schedules::make_schedule(name, shape);
    texts.push_back(schedules::to_csv(made));
    texts.push_back(schedules::to_csv(schedules::with_messages(made)));
  }
  texts.push_back(schedules::to_csv(schedules::make_schedule("bpipe", {4, 4, 1})));
  texts.emplace_back("0F0.0,0F0.1,0B0.1,0B0.0\n");
  texts.emplace_back("\"0F0\",,(0F1;0B0)OVERLAP_F_B,0B1,0UNSHARD,0RESHARD,0REDUCE_GRAD\r\n");
  return texts;
}

void read_schedule(const std::string& text) {
  const schedules::Schedule made = schedules::parse_csv(text, "mine.csv");
  LOCKSTEP_CHECK(schedules::parse_csv(schedules::to_csv(made), "mine.csv").of_rank == made.of_rank, "the same again");
  const std::vector<schedules::Problem> problems = schedules::check(made);
  if (!problems.empty()) {
    schedules::grid_around(made, problems.front());
    throw core::usage_error(problems.front().what);
  }
  const schedules::Schedule messages = schedules::has_messages(made) ? made : schedules::with_messages(made);
  schedules::hang_of(messages, {schedules::Waiting::blocking, 1});
}

// ---- Plans.

Texts plan_texts() {
  Texts texts;
  for (const char* const name : {"ring", "double_tree", "halving_doubling", "two_shot"}) {
    const auto choice = algorithms::parse_choice(collectives::Kind::all_reduce, name);
    texts.push_back(plan::to_text(algorithms::make_plan(choice, 4, 0)));
  }
  const auto choice = algorithms::parse_choice(collectives::Kind::broadcast, "binomial");
  texts.push_back(plan::to_text(algorithms::make_plan(choice, 3, 1)));
  texts.emplace_back(
      "plan all_to_all_v mine ranks=1 root=0 chunks=2 scratch=3\nrank 0 lane 0\n"
      "copy output[0..1] <- input[0..1]\nrank 0 lane 1\ncopy scratch[0] <- input[0] after 0.0\n");
  return texts;
}

Texts msccl_texts() {
  Texts texts;
  for (const char* const name : {"ring", "two_shot", "ring:lanes=2"}) {
    const auto choice = algorithms::parse_choice(collectives::Kind::all_reduce, name);
    texts.push_back(plan::to_msccl(algorithms::make_plan(choice, 3, 0)));
  }
  const auto choice = algorithms::parse_choice(collectives::Kind::all_gather, "ring");
  texts.push_back(plan::to_msccl(algorithms::make_plan(choice, 2, 0)));
  return texts;
}

void read_plan(const std::string& text) {
  plan::StepLines lines;
  const plan::Plan made = plan::parse_any_plan(text, "mine.plan", &lines);
  LOCKSTEP_CHECK(plan::parse_plan(plan::to_text(made)) == made, "the same again");
  const plan::CheckResult result = plan::check(made, {.capacity = plan::kUnbounded});
  if (!result.ok()) throw core::usage_error(result.problems.front().text());
  plan::draw(made, result.contents);
}

// ---- Traces.

// Two ranks: both compute, one sends to the other, both reduce.
const schedules::ChakraTrace& valid_trace() {
  using schedules::ChakraType;
  static const schedules::ChakraTrace kTrace = [] {
    schedules::ChakraTrace trace{{}, {{"0", {0, 1}}}};
    for (const auto type : {ChakraType::comm_send, ChakraType::comm_recv}) {
      const std::map<std::string, std::int64_t> message{
          {"comm_size", 77}, {"comm_src", 0}, {"comm_dst", 1}, {"comm_tag", 5}};
      const std::map<std::string, std::int64_t> sum{{"comm_type", 0}, {"comm_size", 4096}, {"is_cpu_op", 0}};
      trace.of_rank.push_back(
          {{4, "groups", ChakraType::metadata, {}, 0, R"([{"pg_name": "0", "ranks": [0, 1]}])", {}, {}},
           {1, "forward", ChakraType::comp, {}, 5, "", {}, {}},
           {2, "message", type, {1}, 0, "", message, {}},
           {3, "sum", ChakraType::comm_coll, {1, 2}, 0, "", sum, {{"pg_name", "0"}}}});
    }
    return trace;
  }();
  return kTrace;
}

void replay(const schedules::ChakraTrace& trace) {
  static const simulator::Machine kMachine = simulator::load_machine("one-switch");
  const schedules::ChakraPrices prices{
      [](double flops, double bytes) { return simulator::roofline_ps(kMachine.device, flops, bytes); },
      [](double bytes, bool) { return static_cast<std::int64_t>(bytes); }};
  const schedules::Step step = schedules::read_chakra(trace, "mine", prices).step;
  schedules::to_chakra(step);
  simulator::replay(step, kMachine);
}

void read_chakra(const std::string& text) {  // the file of rank 0 of 2
  schedules::ChakraTrace trace = valid_trace();
  trace.of_rank[0] = schedules::parse_chakra_file(text, "mine.0.et");
  replay(trace);
}

void read_chakra_groups(const std::string& text) {
  schedules::ChakraTrace trace = valid_trace();
  trace.groups = schedules::parse_chakra_groups(text, "mine.groups.json");
  replay(trace);
}

// ---- Machines and records.

void read_machine(const std::string& text) {
  const simulator::Machine machine = simulator::parse_machine(text, "mine.json");
  const std::string json = simulator::to_json(machine);
  LOCKSTEP_CHECK(simulator::to_json(simulator::parse_machine(json, "again.json")) == json, "the same again");
  simulator::numbers_of(machine);
}

Texts record_texts() {
  std::string text = R"({"record":"run","machine":{"cpu":"a CPU","memory_bytes":1000,"cores":2,"gpus":[]}})";
  const auto add = [&](const std::string& line) { text += "\n" + line; };
  const std::array kCeilings{R"("gemm","level":null,"dtype":"f32")",    R"("fma","level":null,"dtype":"f32")",
                             R"("launch","level":null,"dtype":null)",   R"("copy","level":"memory","dtype":null)",
                             R"("read","level":"memory","dtype":null)", R"("triad","level":"memory","dtype":null)"};
  for (const char* const one : kCeilings) {
    add(R"({"record":"ceiling","device":"cpu","threads":1,"value":50.5,"name":)" + std::string(one) + "}");
  }
  add(R"({"record":"kernel","kernel":"gelu_fwd","dtype":"f32","device":"cpu","status":"ok","bound":"memory","flops":1,)"
      R"("bytes":8,"cache":"cold","threads":1,"copies":1,"operands":[{"dtype":"f32","bytes":8}],"stats":{"median":3}})");
  for (const char* const us : {"3", "40", "300"}) {
    add(R"({"record":"row","collective":"all_reduce","algorithm":"ring","ranks":4,"status":"ok","basis":"measured",)"
        R"("transport":"local","bytes":1024,"time_us":)" +
        std::string(us) + R"(,"plan":{"steps":6,"wire_bytes_max":)" + us + "000}}");
  }
  return {text + "\n"};
}

// A switch, a torus, NCCL's figures, measurements: the other built-in machines have the same fields.
Texts machine_texts() {
  Texts texts;
  for (const char* const name : {"one-switch", "tpu-v3", "dgx-h100"}) {
    texts.push_back(simulator::to_json(simulator::load_machine(name)));
  }
  const auto records = simulator::read_record_lines(record_texts().front(), "r.jsonl");
  texts.push_back(simulator::to_json(simulator::calibrate(records, "r.jsonl")));
  return texts;
}

void read_records(const std::string& text) {
  const simulator::Machine machine = simulator::calibrate(simulator::read_record_lines(text, "r.jsonl"), "r.jsonl");
  simulator::parse_machine(simulator::to_json(machine), "calibrated.json");
}

void read_tuning(const std::string& text) {
  const tuning::Table table = tuning::load_table(file_of("tuning.json", text));
  tuning::measured_choice(table, {"local", collectives::Kind::all_reduce, 4, 1000});
}

// ---- Checkpoints, weights, tokens.

Texts manifest_texts() {
  trainer::Contents contents;
  contents.manifest = {.step = 10, .model = {{"layers", 2}}, .layout = {{"dp", "2"}}, .integers = {{"tokens", 99}}};
  contents.manifest.reals = {{"loss", 1.5}};
  contents.tensors = {{"w", {8, 10}}, {"b", {10}}};
  contents.files = {{"rank-0.safetensors", {500, 7}, {{"w", {{0, 5}, {10, 5}, {20, 60}}}}},
                    {"rank-1.safetensors", {400, 8}, {{"w", {{5, 5}, {15, 5}}}, {"b", {{0, 10}}}}}};
  return {trainer::contents_text(contents)};
}

// Half of the inputs get a checksum that fits them, without which nothing behind it would be reached.
void read_manifest(const std::string& given) {
  std::string text = given;
  constexpr std::size_t kTail = 24;  // ,\n"crc32": "01234567"}\n
  if (text.size() > kTail && text.size() % 2 == 0) {
    const std::string body = text.substr(0, text.size() - kTail);
    text = body + ",\n\"crc32\": \"" + trainer::crc32_text(trainer::crc32_of(body)) + "\"}\n";
  }
  trainer::check_whole(trainer::parse_contents(text, "manifest.json"), "manifest.json");
}

Texts weight_texts() {
  std::vector<trainer::TensorInfo> tensors = {{"w", "F32", {2, 3}}, {"b", "BF16", {4}}, {"n", "I64", {1}}};
  trainer::place_tensors(tensors);
  const auto bytes = static_cast<std::size_t>(tensors.back().end);
  return {trainer::header_text({tensors, {{"format", "pt"}}}) + std::string(bytes, '\1'),
          trainer::header_text({{}, {}})};
}

void read_weights(const std::string& text) {
  const trainer::SafetensorsFile file(file_of("model.safetensors", text));
  for (const trainer::TensorInfo& tensor : file.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elems()));
    if (tensor.dtype != "I64") file.read(tensor, 0, values);
  }
}

void read_index(const std::string& text) {
  static const std::string kWeights = file_of("model-1.safetensors", weight_texts().front());  // in the index's folder
  const trainer::WeightFiles files(file_of("model.safetensors.index.json", text));
}

void read_config(const std::string& text) {
  const std::string file = file_of("config.json", text);
  trainer::config_for(file, workload::parse_model("llama3-8b"));
}

void read_pointer(const std::string& text) {
  const std::string file = file_of("latest", text);
  const std::string folder = file.substr(0, file.rfind('/'));
  std::filesystem::create_directories(folder + "/step-00000010");
  file_of("step-00000010/manifest.json", "");
  trainer::find_checkpoint(folder);
}

const std::string kTokens = LOCKSTEP_TOKEN_FIXTURES;
constexpr std::size_t kMerges = 12;

// A vocabulary without what later merges make: a reader takes some ms for a whole one. (Its first 256 are the bytes.)
nlohmann::ordered_json short_vocabulary(const nlohmann::ordered_json& whole) {
  nlohmann::ordered_json some;
  for (const auto& [word, id] : whole.items()) {
    if (id.get<std::size_t>() < 256 + kMerges) some[word] = id;
  }
  return some;
}

std::string short_tokenizer(const std::string& name) {
  auto all = nlohmann::ordered_json::parse(text_of_file(kTokens + name));
  auto& model = all["model"];
  model["vocab"] = short_vocabulary(model["vocab"]);
  auto& merges = model["merges"];
  merges.erase(merges.begin() + kMerges, merges.end());
  std::size_t next = model["vocab"].size();
  for (auto& added : all["added_tokens"]) added["id"] = next++;
  all["post_processor"] = {{"type", "TemplateProcessing"},
                           {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                           {"special_tokens", {{"<s>", {{"ids", {1}}}}}}};
  return all.dump();
}

std::string short_merges() {
  const std::string all = text_of_file(kTokens + "/merges.txt");
  std::size_t end = 0;
  for (std::size_t line = 0; line <= kMerges; ++line) end = all.find('\n', end) + 1;  // one is the version
  return all.substr(0, end);
}

void read_tokenizer(const std::string& text) {
  trainer::Tokenizer::of_file(file_of("tokenizer.json", text)).encode("Hello, world! <|endoftext|> 12345");
}

void read_merges(const std::string& text) {
  static const std::string kVocabulary = file_of(
      "vocab.json", short_vocabulary(nlohmann::ordered_json::parse(text_of_file(kTokens + "/vocab.json"))).dump());
  file_of("merges.txt", text);
  trainer::Tokenizer::of_file(kVocabulary).encode("Hello, world!");
}

Texts token_texts() {
  static const core::TemporaryFolder kFolder;
  Texts texts;
  for (const std::int64_t words : {256, 100'000}) {
    trainer::TokenFileWriter writer(kFolder / "tokens.bin", words);
    writer.write(std::vector<std::int32_t>{1, 2, 3, 4, 5});
    writer.commit();
    texts.push_back(text_of_file(kFolder / "tokens.bin"));
  }
  return texts;
}

void read_tokens(const std::string& text) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto part = trainer::tokens_in("tokens.bin", bytes);
  if (!part) return;
  trainer::TokenText tokens;
  tokens.append(*part);
  std::vector<std::int32_t> all(tokens.size());
  tokens.copy(0, all);
}

// ---- Short texts of flags. A line end in one is escaped where the flag is refused (FlagValue, bench/program).

template <class Parse>
std::function<void(const std::string&)> flag(const Parse& parse) {
  return [parse](const std::string& text) {
    if (text.find('\n') == std::string::npos) parse(text);
  };
}

void read_step(const std::string& text) {  // "model / layout"
  const std::size_t slash = std::min(text.find('/'), text.size());
  const workload::Model model = workload::parse_model(text.substr(0, slash));
  const workload::Layout layout = workload::parse_layout(text.substr(std::min(slash + 1, text.size())));
  workload::parse_layout(workload::text_of(layout));
  if (const std::string why = workload::why_invalid(model, layout); !why.empty()) throw core::usage_error(why);
  workload::parameters_of(model);
}

void read_algorithm(const std::string& text) {
  const algorithms::Choice choice = algorithms::parse_choice(collectives::Kind::all_reduce, text);
  constexpr int kRanks = 8;
  if (const auto why = algorithms::refusal(choice, kRanks, 0)) throw core::usage_error(*why);
  algorithms::make_plan(choice, kRanks, 0);
}

std::vector<FuzzedReader> readers() {
  return {
      {"schedule_csv",
       schedule_texts(),
       {"F", "B", "I", "W", "SEND_F", "RECV_B", "EVICT", "FETCH", "0F0", "1B1"},
       read_schedule},
      {"plan",
       plan_texts(),
       {"send", "recv", "recv_reduce", "copy", "reduce", "input", "output", "scratch", "after", "rank", "lane"},
       read_plan},
      {"msccl",
       msccl_texts(),
       {"<step", "/>", "</tb>", "s", "r", "rrc", "rcs", "nop", "depid", "hasdep", "cnt", "inplace", "&lt;", "<!--"},
       read_plan},
      {"chakra",
       {schedules::to_chakra_file(valid_trace().of_rank[0])},
       {"comm_size", "comm_type", "pg_name", "duration_ps", "lane", "\x08\x01", "\x12\x7f", "\xff\xff\xff\xff\x0f"},
       read_chakra},
      {"chakra_groups", {schedules::to_chakra_groups(valid_trace().groups)}, {"0", "[0, 1]"}, read_chakra_groups},
      {"machine", machine_texts(), {"ranks", "gbps", "measured", "torus", "nccl", "levels"}, read_machine},
      {"records", record_texts(), {"run", "kernel", "ceiling", "row", "cuda", "cold"}, read_records},
      {"tuning",
       {R"({"version":1,"machine":"m","entries":[{"transport":"local","collective":"all_reduce","ranks":4,"bytes":1024,"algorithm":"ring"}]})"},
       {"all_gather"},
       read_tuning},
      {"manifest", manifest_texts(), {"w", "b", "runs", "tensors"}, read_manifest},
      {"safetensors", weight_texts(), {"F16", "F4", "U8", "__metadata__", "shape"}, read_weights},
      {"weights_index",
       {R"({"metadata":{},"weight_map":{"w":"model-1.safetensors","b":"model-1.safetensors"}})"},
       {"/etc/passwd", "..", "model-2.safetensors"},
       read_index},
      {"config",
       {R"({"model_type":"llama","num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"rope_theta":500000.0,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_parameters":null,"layer_types":["full_attention"]})"},
       {"rope_parameters", "rope_type", "sliding_window", "factor", "dynamic"},
       read_config},
      {"latest",
       {"step-00000010 " + trainer::crc32_text(trainer::crc32_of("step-00000010")) + "\n"},
       {"step-00000020", "..", "/"},
       read_pointer},
      {"tokenizer",
       {short_tokenizer("/gpt2.json"), short_tokenizer("/llama3.json")},
       {"vocab", "merges", "id", "content", "single", "normalized", "SpecialToken"},
       read_tokenizer},
      {"merges", {short_merges()}, {"#version"}, read_merges},
      {"token_file", token_texts(), {}, read_tokens},
      {"model_and_layout",
       {"gpt3-175b/tp=8,pp=64,dp=6,microbatch=1,batch=3072,recompute=full",
        "llama3-8b,sequence=4096/tp=4,cp=2,zero=1,dp=4,batch=64,schedule=1f1b",
        "layers=4,hidden=32,heads=4,vocabulary=256,sequence=16,experts=4,experts_per_token=2/"
        "dp=4,ep=2,batch=8,offload=optimizer:host"},
       {"zero", "schedule", "interleaved", "chunks", "grid", "2x2", "experts", "balanced", "100000x1"},
       flag(read_step)},
      {"algorithm",
       {"ring", "ring:lanes=4", "tree:radix=4", "hierarchical"},
       {"lanes", "radix", "double_tree"},
       flag(read_algorithm)},
      {"link", {"latency_us=10,gbps=1"}, {}, flag([](const std::string& text) { transports::parse_link(text); })},
      {"sync",
       {"diloco:every=20:rate=0.7:momentum=0.9", "server:servers=2", "async:staleness=1", "allreduce"},
       {},
       flag([](const std::string& text) { trainer::parse_sync(text); })},
      {"straggler", {"replica=1,factor=3", "replica=any,factor=3,step_ms=40"}, {}, flag([](const std::string& text) {
         trainer::parse_straggler(text);
       })},
      {"power",
       {"fixed=100,dynamic=300,idle=80,top=1410,least=210,step=15,knee=0.65,bound=1"},
       {},
       flag([](const std::string& text) { simulator::parse_power(text); })},
      {"compression",
       {"topk:density=0.01", "powersgd:rank=4", "int8:feedback=0", "threshold:at=0.5:density=0.1"},
       {},
       flag([](const std::string& text) { workload::parse_compression(text); })},
      {"grid", {"2x2", "2x2x2", "2.5d:4x4x2"}, {}, flag([](const std::string& text) { workload::parse_grid(text); })},
      {"nccl_choice", {"library:algo=ring:proto=ll128"}, {"tree", "simple"}, flag([](const std::string& text) {
         libraries::parse_nccl_choice(text);
       })},
      {"size", {"8", "1.5M", "64KiB", "2g"}, {}, flag([](const std::string& text) { core::parse_size(text); })},
  };
}

// Readers with a planted mistake: the fuzz sees each, and nothing in a reader without one.
TEST(Fuzz, FindsPlantedMistakes) {
  using Read = std::function<void(const std::string&)>;
  const auto at_a_seven = [](const Read& mistake) {
    return Read([mistake](const std::string& text) {
      if (text.find('7') != std::string::npos) mistake(text);
    });
  };
  const auto findings = [](const Read& read) {
    return core::fuzz({"planted", {"a=1,b=2"}, {}, read}, {.inputs = 60, .seed = 1, .longest_s = 0.3}).findings;
  };
  const std::vector<std::pair<std::string, Read>> planted = {
      {"signal", [](const std::string&) { std::abort(); }},
      {"takes longer", [](const std::string&) { std::this_thread::sleep_for(std::chrono::hours(1)); }},
      {"other than a core::Error", [](const std::string&) { throw std::out_of_range("7"); }},
      {"no exception of the standard library", [](const std::string&) { throw 7; }},
      {"a check of our own", [](const std::string&) { LOCKSTEP_CHECK(false, ""); }},
      {"not one line", [](const std::string&) { throw core::usage_error("a\nb"); }},
      {"", [](const std::string&) { std::vector<char>(std::size_t{1} << 31); }}};
  for (const auto& [what, mistake] : planted) {
    const std::vector<std::string> found = findings(at_a_seven(mistake));
    ASSERT_FALSE(found.empty()) << what;
    EXPECT_NE(found.front().find(what), std::string::npos) << found.front();
  }
  EXPECT_FALSE(findings([](const std::string&) { throw core::usage_error("no"); }).empty()) << "examples must be taken";
  EXPECT_TRUE(findings(at_a_seven([](const std::string&) { throw core::usage_error("no"); })).empty());
}

class Readers : public testing::TestWithParam<FuzzedReader> {};

TEST_P(Readers, TakeOrRefuseInOneLine) {
  const core::FuzzResult result = core::fuzz(GetParam(), core::fuzz_options());
  std::printf("%s: %lld taken, %lld refused\n", GetParam().name.c_str(), static_cast<long long>(result.taken),
              static_cast<long long>(result.refused));
  for (const std::string& finding : result.findings) ADD_FAILURE() << finding;
}

INSTANTIATE_TEST_SUITE_P(Inputs, Readers, testing::ValuesIn(readers()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep
