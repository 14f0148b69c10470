// Chakra traces: against bytes that Google's protobuf wrote, as graphs, back as the same step, and with broken input.
#include "schedules/step/traces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/error.h"
#include "schedules/passes/passes.h"
#include "testing/core/refusal.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// A task behind all others of its rank, which waits for the last of them.
void append(Step& step, std::size_t r, Task task) {
  RankStep& rank = step.of_rank[r];
  task.first_after = static_cast<std::uint32_t>(rank.after.size());
  task.num_after = 1;
  rank.after.push_back(static_cast<std::uint32_t>(rank.tasks.size() - 1));
  rank.tasks.push_back(task);
}

// A pipeline of two ranks, then collectives of both.
Step small_step() {
  const Schedule schedule = make_schedule("1f1b", {.ranks = 2, .microbatches = 3});
  Step step = step_of_parts(schedule, 2, 1);
  step.groups = {{GroupKind::embedding, {0, 1}}, {GroupKind::context, {0, 1}}};
  reduce_at_end(step, GroupKind::embedding, 4096);
  for (std::size_t r = 0; r < 2; ++r) {
    Task task{.op = Op::layer_collective, .lane = Lane::tensor, .comm = Comm::all_gather, .part = 3, .peer = 1};
    task.amount = 1001;  // no multiple of the ranks
    append(step, r, task);
    task.comm = Comm::reduce_scatter;
    task.lane = Lane::reduce;
    append(step, r, task);
    append(step, r, {.op = Op::optimizer, .host_waits = true, .amount = 1'234'567, .issue_ps = 17});
    append(step, r, {.op = Op::offload, .lane = Lane::copy, .amount = 3});
  }
  return step;
}

Step with_a_shift() {
  Step step = small_step();
  for (std::size_t r = 0; r < 2; ++r) {
    append(step, r, {.op = Op::layer_collective, .lane = Lane::tensor, .comm = Comm::shift, .peer = 1, .amount = 77});
  }
  return step;
}

// Through the bytes of its files.
ChakraTrace written_and_read(const Step& step) {
  const ChakraTrace written = to_chakra(step);
  ChakraTrace trace{{}, parse_chakra_groups(to_chakra_groups(written.groups), "t.groups.json")};
  for (std::size_t r = 0; r < written.of_rank.size(); ++r) {
    trace.of_rank.push_back(parse_chakra_file(to_chakra_file(written.of_rank[r]), chakra_file_name("t", r)));
  }
  return trace;
}

// One picosecond per FLOP or byte; memory nodes take ten times as long from the host.
ReadChakra read(const ChakraTrace& trace) {
  return read_chakra(
      trace, "t",
      {[](double flops, double bytes) { return static_cast<std::int64_t>(std::max(flops, bytes)); },
       [](double bytes, bool is_local) { return static_cast<std::int64_t>(bytes * (is_local ? 1 : 10)); }});
}

Step step_of(const ChakraTrace& trace) {
  return read(trace).step;
}

std::string refusal_of(const ChakraTrace& trace) {
  return core::refusal_of([&] { step_of(trace); });
}

std::string refusal_of_bytes(const std::string& bytes) {
  return core::refusal_of([&] { parse_chakra_file(bytes, "t.0.et"); });
}

testing::AssertionResult mentions(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" does not mention \"" << part << '"';
}

// The first node of a type.
ChakraNode& first(ChakraTrace& trace, std::size_t rank, ChakraType type) {
  auto& nodes = trace.of_rank[rank];
  return *std::find_if(nodes.begin(), nodes.end(), [&](const ChakraNode& node) { return node.type == type; });
}

TEST(Chakra, IsReadAndWrittenAsProtobufDoes) {
  // Made with Google's protobuf from the fields of et_def.proto: GlobalMetadata{version "0.0.4"} and a Node.
  const std::string bytes = from_hex(
      "070a05302e302e345708ac02120a616c6c5f72656475636518072a0301ab023805520f0a09636f6d6d5f73697a6548808040520d0a09636f"
      "6d6d5f747970654800520e0a0969735f6370755f6f70d80100520d0a0770675f6e616d65ea010132");
  const std::vector<ChakraNode> nodes = parse_chakra_file(bytes, "t.0.et");
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0].id, 300U);
  EXPECT_EQ(nodes[0].name, "all_reduce");
  EXPECT_EQ(nodes[0].type, ChakraType::comm_coll);
  EXPECT_EQ(nodes[0].dependencies, (std::vector<std::uint64_t>{1, 299}));
  EXPECT_EQ(nodes[0].duration_us, 5);
  EXPECT_EQ(nodes[0].numbers,
            (std::map<std::string, std::int64_t>{{"comm_size", 1 << 20}, {"comm_type", 0}, {"is_cpu_op", 0}}));
  EXPECT_EQ(nodes[0].texts, (std::map<std::string, std::string>{{"pg_name", "2"}}));
  EXPECT_EQ(to_chakra_file(nodes), bytes);
}

TEST(Chakra, ReadsBackTheSameStep) {
  const Step step = small_step();
  const Step read = step_of(written_and_read(step));
  ASSERT_EQ(read.of_rank.size(), step.of_rank.size());
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    ASSERT_EQ(read.of_rank[r].tasks.size(), step.of_rank[r].tasks.size());
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& was = step.of_rank[r].tasks[i];
      const Task& is = read.of_rank[r].tasks[i];
      EXPECT_EQ(is.op, was.op);
      EXPECT_EQ(is.lane, was.lane);
      EXPECT_EQ(is.comm, was.comm);
      EXPECT_EQ(is.amount, was.amount);
      EXPECT_EQ(is.issue_ps, was.issue_ps);
      EXPECT_EQ(is.host_waits, was.host_waits);
      EXPECT_EQ(std::tuple(is.stage, is.microbatch, is.part), std::tuple(was.stage, was.microbatch, was.part));
      if (was.comm != Comm::none) {
        EXPECT_EQ(read.groups[static_cast<std::size_t>(is.peer)].ranks,
                  step.groups[static_cast<std::size_t>(was.peer)].ranks);
        EXPECT_EQ(read.groups[static_cast<std::size_t>(is.peer)].kind,
                  step.groups[static_cast<std::size_t>(was.peer)].kind);
      } else if (is_message(was.op)) {
        EXPECT_EQ(is.peer, was.peer);
      }
    }
  }
  EXPECT_EQ(end_of(play_simply(read)), end_of(play_simply(step)));
}

TEST(Chakra, IsAGraphWithoutCyclesWhoseMessagesPair) {
  const ChakraTrace trace = to_chakra(with_a_shift());
  std::multiset<std::vector<std::int64_t>> sent, received;
  for (std::size_t r = 0; r < trace.of_rank.size(); ++r) {
    std::set<std::uint64_t> before;
    for (const ChakraNode& node : trace.of_rank[r]) {
      for (const std::uint64_t dependency : node.dependencies) EXPECT_TRUE(before.count(dependency)) << node.id;
      EXPECT_TRUE(before.insert(node.id).second) << node.id;
      if (node.type != ChakraType::comm_send && node.type != ChakraType::comm_recv) continue;
      const bool sends = node.type == ChakraType::comm_send;
      EXPECT_EQ(node.numbers.at(sends ? "comm_src" : "comm_dst"), static_cast<std::int64_t>(r));
      (sends ? sent : received)
          .insert({node.numbers.at("comm_src"), node.numbers.at("comm_dst"), node.numbers.at("comm_tag"),
                   node.numbers.at("comm_size")});
    }
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent.size(), 6U + 2U);  // the pipeline's, and the shift's
  EXPECT_EQ(std::set(sent.begin(), sent.end()).size(), sent.size()) << "tags distinguish messages";
}

TEST(Chakra, SizesAreThoseOfARanksInput) {
  const ChakraTrace trace = to_chakra(small_step());
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> of;  // name -> type, size
  for (const ChakraNode& node : trace.of_rank[1]) {
    if (node.type == ChakraType::comm_coll) {
      of[node.name.substr(0, node.name.find(' '))] = {node.numbers.at("comm_type"), node.numbers.at("comm_size")};
    }
  }
  EXPECT_EQ(of.at("all_reduce"), std::pair(std::int64_t{0}, std::int64_t{4096}));
  EXPECT_EQ(of.at("all_gather"), std::pair(std::int64_t{2}, std::int64_t{501}));
  EXPECT_EQ(of.at("reduce_scatter"), std::pair(std::int64_t{7}, std::int64_t{1001}));
  EXPECT_EQ(trace.groups.size(), 3U) << "one for each lane of a group";
}

ChakraNode node_of(std::uint64_t id, ChakraType type, std::vector<std::uint64_t> dependencies) {
  ChakraNode node;
  node.id = id;
  node.type = type;
  node.dependencies = std::move(dependencies);
  return node;
}

// A trace that another tool wrote: no lanes, no groups file, another kind of number, dependencies against the order of
// numbers.
TEST(Chakra, ReadsTracesOfOthers) {
  ChakraTrace trace;
  for (int rank = 0; rank < 4; ++rank) {
    ChakraNode compute = node_of(9, ChakraType::comp, {});
    compute.duration_us = 50;
    ChakraNode reduce = node_of(2, ChakraType::comm_coll, {9});
    reduce.numbers = {{"comm_type", 8}, {"comm_size", 400}};
    ChakraNode gather = node_of(3, ChakraType::comm_coll, {2});
    gather.numbers = {{"comm_type", 2}, {"comm_size", 100}};
    gather.texts["pg_name"] = rank < 2 ? "5" : "6";
    ChakraNode groups = node_of(1, ChakraType::metadata, {});
    groups.input_values =
        R"(['[{"pg_name": "5", "ranks": {"0": 0, "1": 1}}, {"pg_name": "6", "ranks": [2, 3]}, {"pg_name": "0", "ranks": []}]'])";
    trace.of_rank.push_back({compute, reduce, gather, groups});
  }
  const Step step = step_of(trace);
  const auto& tasks = step.of_rank[3].tasks;
  ASSERT_EQ(tasks.size(), 4U);
  EXPECT_EQ(tasks[1].amount, 50'000'000);
  EXPECT_EQ(tasks[2].comm, Comm::reduce_scatter);
  EXPECT_EQ(step.groups[static_cast<std::size_t>(tasks[2].peer)].ranks, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(tasks[3].amount, 200);
  EXPECT_EQ(step.groups[static_cast<std::size_t>(tasks[3].peer)].ranks, (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(end_of(play_simply(step)), 50'000'000);
}

// A task has at most as many edges as the engine counts: lanes run in order, so the last task of each is enough.
TEST(Chakra, JoinsOfManyNodesKeepOneEdgePerLane) {
  constexpr std::uint64_t kNodes = 70'000;
  std::vector<ChakraNode> nodes;
  ChakraNode join = node_of(kNodes + 1, ChakraType::comp, {});
  for (std::uint64_t id = 1; id <= kNodes; ++id) {
    nodes.push_back(node_of(id, ChakraType::mem_load, {}));
    nodes.back().duration_us = 1;
    join.dependencies.push_back(id);
  }
  nodes.push_back(join);
  const Step step = step_of({{nodes}, {}});
  EXPECT_EQ(step.of_rank[0].tasks.back().num_after, 1U);
  EXPECT_EQ(step.of_rank[0].after, (std::vector<std::uint32_t>{kNodes - 1}));
}

// A node whose attributes are of every kind that et_def.proto names: taken, or named in a note.
TEST(Chakra, ValuesOfEveryKindAreTakenOrNoted) {
  // The key of field `number` with a wire type, and a value's bytes.
  const auto key = [](unsigned number, unsigned wire) {
    const unsigned all = (number << 3U) | wire;
    return all < 128 ? std::string(1, static_cast<char>(all))
                     : std::string{static_cast<char>((all & 127U) | 128U), static_cast<char>(all >> 7U)};
  };
  const auto with_length = [](const std::string& bytes) { return static_cast<char>(bytes.size()) + bytes; };
  const auto attribute = [&](const std::string& name, const std::string& value) {
    return key(10, 2) + with_length(key(1, 2) + with_length(name) + key(2, 2) + with_length("a description") + value);
  };
  std::string node = key(1, 0) + "\7" + key(2, 2) + with_length("x") + key(3, 0) + "\4";
  for (const unsigned number : {7U, 9U, 11U, 13U, 27U})  // int32, int64, uint32, uint64, bool
    node += attribute("n" + std::to_string(number), key(number, 0) + "\1");
  for (const unsigned number : {15U, 17U})
    node += attribute("n" + std::to_string(number), key(number, 0) + "\2");  // sint
  for (const unsigned number : {19U, 23U})
    node += attribute("n" + std::to_string(number), key(number, 5) + std::string("\1\0\0\0", 4));
  for (const unsigned number : {21U, 25U})
    node += attribute("n" + std::to_string(number), key(number, 1) + std::string("\1\0\0\0\0\0\0\0", 8));
  node += attribute("n3", key(3, 1) + from_hex("000000000000f03f"));  // double 1
  node += attribute("n5", key(5, 5) + from_hex("0000803f"));          // float 1
  node += attribute("half", key(5, 5) + from_hex("0000003f"));
  node += attribute("text", key(29, 2) + with_length("yes"));
  for (unsigned list = 4; list <= 32; list += 2)
    node += attribute("list" + std::to_string(list), key(list, 2) + with_length(key(1, 0) + "\1"));
  node += attribute("bytes", key(31, 2) + with_length("b"));
  node += attribute("involved_dim", key(28, 2) + with_length(key(1, 2) + with_length(std::string("\1\0\1", 3))));
  node += key(6, 0) + "\5" + key(8, 2) + with_length(key(2, 2) + with_length("[[2]]")) + key(9, 2) + with_length("");
  const std::string bytes = from_hex("070a05302e302e34") + static_cast<char>((node.size() & 127U) | 128U) +
                            static_cast<char>(node.size() >> 7U) + node;
  const ChakraNode read = parse_chakra_file(bytes, "t.0.et").at(0);
  for (const int number : {3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27})
    EXPECT_EQ(read.numbers.at("n" + std::to_string(number)), 1) << number;
  EXPECT_EQ(read.texts, (std::map<std::string, std::string>{{"text", "yes"}}));
  EXPECT_EQ(read.involved_dim, (std::vector<bool>{true, false, true}));
  for (const char* const name : {"half", "bytes", "list4", "list28", "list32", "start_time_micros"})
    EXPECT_EQ(std::count(read.unread.begin(), read.unread.end(), name), 1) << name;
  const std::vector<std::string> notes = lockstep::schedules::read({{{read}}, {}}).notes;
  ASSERT_EQ(notes.size(), 2U);  // the node has no duration either
  EXPECT_TRUE(mentions(notes[1], "half (1)"));
  EXPECT_TRUE(mentions(notes[1], "n27 (1)"));
  EXPECT_TRUE(mentions(notes[1], "text (1)"));
  EXPECT_FALSE(mentions(notes[1], "involved_dim"));
}

TEST(Chakra, SizesWithoutADurationArePriced) {
  ChakraNode compute = node_of(1, ChakraType::comp, {});
  compute.numbers = {{"num_ops", 3000}, {"tensor_size", 2000}};
  ChakraNode pass = node_of(2, ChakraType::comp, {});
  pass.numbers = {{"tensor_size", 5000}};
  ChakraNode timed = node_of(3, ChakraType::comp, {});
  timed.numbers = compute.numbers;
  timed.duration_us = 7;
  ChakraNode load = node_of(4, ChakraType::mem_load, {});
  load.numbers = {{"tensor_size", 100}};
  ChakraNode local = node_of(5, ChakraType::mem_store, {});
  local.numbers = {{"tensor_size", 100}, {"tensor_loc", 1}};
  const ChakraTrace trace{
      {{compute, pass, timed, load, local, node_of(6, ChakraType::comp, {}), node_of(7, ChakraType::mem_load, {})}},
      {}};
  const ReadChakra result = read(trace);
  std::vector<std::int64_t> amounts;
  for (const Task& task : result.step.of_rank[0].tasks) amounts.push_back(task.amount);
  EXPECT_EQ(amounts, (std::vector<std::int64_t>{3000, 5000, 7'000'000, 1000, 100, 0, 0}));
  std::string notes;
  for (const std::string& note : result.notes) notes += note + "\n";
  EXPECT_TRUE(mentions(notes, "2 compute nodes without a duration: max(num_ops / peak, tensor_size / bandwidth)"));
  EXPECT_TRUE(mentions(notes, "1 memory nodes without a duration: tensor_size at the bandwidth of the link"));
  EXPECT_TRUE(mentions(notes, "1 memory nodes without a duration: tensor_size at the bandwidth of the device"));
  EXPECT_TRUE(mentions(notes, "1 compute nodes without duration, num_ops and tensor_size"));
  EXPECT_TRUE(mentions(notes, "1 memory nodes without duration and tensor_size"));
  compute.numbers["num_ops"] = -1;
  EXPECT_TRUE(mentions(refusal_of({{{compute}}, {}}), "num_ops is -1; allowed: 0 to"));
}

TEST(Chakra, DependenciesOnDroppedNodesAreCounted) {
  ChakraTrace trace = to_chakra(small_step());
  first(trace, 0, ChakraType::comp).dependencies = {4444, 5555};
  const ReadChakra result = read(trace);
  EXPECT_TRUE(result.is_ours);
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_TRUE(mentions(result.notes[0], "2 dependencies on nodes that the files do not have"));
}

// Four ranks: the groups of a collective on rank 3, by each way to name them.
TEST(Chakra, GroupsOfAllVersions) {
  const auto ranks_of = [](const auto& change, ChakraGroups groups) {
    ChakraTrace trace{{}, std::move(groups)};
    for (int rank = 0; rank < 4; ++rank) {
      ChakraNode reduce = node_of(2, ChakraType::comm_coll, {});
      reduce.numbers = {{"comm_type", 0}, {"comm_size", 400}};
      change(reduce, rank);
      trace.of_rank.push_back({reduce});
    }
    if (const std::string refusal = refusal_of(trace); !refusal.empty()) return refusal;
    const Step step = step_of(trace);
    const auto group = static_cast<std::size_t>(step.of_rank[3].tasks[0].peer);
    std::string text;
    for (const std::int32_t rank : step.groups[group].ranks) text += std::to_string(rank);
    return text;
  };
  const ChakraGroups halves{{"1", {0, 1}}, {"2", {2, 3}}};
  const auto nothing = [](ChakraNode&, int) {};
  const auto text_in = [](const char* attribute) {
    return [attribute](ChakraNode& node, int rank) { node.texts[attribute] = rank < 2 ? "1" : "2"; };
  };
  const auto spans = [](std::vector<bool> dimensions) {
    return [dimensions](ChakraNode& node, int) { node.involved_dim = dimensions; };
  };
  EXPECT_EQ(ranks_of(nothing, {}), "0123");
  EXPECT_EQ(ranks_of(nothing, halves), "23") << "the first ASTRA-sim: the group that has the rank";
  for (const char* const attribute : {"pg_name", "comm_group"}) EXPECT_EQ(ranks_of(text_in(attribute), halves), "23");
  const auto number = [](ChakraNode& node, int rank) { node.numbers["communicator_id"] = rank < 2 ? 1 : 2; };
  EXPECT_EQ(ranks_of(number, halves), "23");
  EXPECT_EQ(ranks_of(spans({true, true}), {}), "0123");
  EXPECT_TRUE(mentions(ranks_of(spans({false, true}), {}), "involved_dim selects some of 2 dimensions"));
  EXPECT_EQ(ranks_of(spans({false, true}), halves), "23");
  EXPECT_TRUE(mentions(ranks_of(nothing, {{"1", {0, 1, 2, 3}}, {"2", {2, 3}}}), "its rank is in 1 and 2"));
  const auto process_groups = [](ChakraNode& node, int) { node.texts["pg_name"] = "7"; };
  EXPECT_TRUE(mentions(ranks_of(process_groups, halves), "pg_name \"7\" is described nowhere"));
}

TEST(Chakra, RefusesWithFileAndNode) {
  const ChakraTrace good = to_chakra(with_a_shift());
  const auto changed = [&](std::size_t rank, ChakraType type, const auto& change) {
    ChakraTrace trace = good;
    change(first(trace, rank, type));
    return refusal_of(trace);
  };
  EXPECT_EQ(refusal_of(good), "");
  EXPECT_TRUE(mentions(changed(1, ChakraType::comm_coll, [](ChakraNode& node) { node.numbers["comm_type"] = 9; }),
                       "comm_type 9 (BARRIER) is not read; allowed: "));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_coll, [](ChakraNode& node) { node.numbers["comm_type"] = 10; }),
                       "comm_type is 10; allowed: 0 to 9"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_coll, [](ChakraNode& node) { node.numbers.erase("comm_size"); }),
                       "has no attribute comm_size"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_coll, [](ChakraNode& node) { node.numbers["comm_size"] = 8192; }),
                       " meets "));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_coll, [](ChakraNode& node) { node.texts["pg_name"] = "77"; }),
                       "pg_name \"77\" is described nowhere"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_send, [](ChakraNode& node) { node.numbers["comm_tag"] = 99; }),
                       "no COMM_RECV_NODE of rank 1 (comm_tag 99) takes this message"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_send, [](ChakraNode& node) { node.numbers["comm_dst"] = 0; }),
                       "is a message of a rank to itself"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comm_send, [](ChakraNode& node) { node.numbers["comm_size"] = 99; }),
                       "sends 99 bytes"));
  EXPECT_TRUE(
      mentions(changed(0, ChakraType::comp, [&](ChakraNode& node) { node.dependencies = {good.of_rank[0].back().id}; }),
               "depends on itself"));
  EXPECT_TRUE(mentions(changed(0, ChakraType::comp, [](ChakraNode& node) { node.id = 2; }),
                       "another node has the same number"));
  EXPECT_TRUE(
      mentions(changed(0, ChakraType::comp, [](ChakraNode& node) { node.numbers["duration_ps"] = -1; }), "11 days"));
  ChakraTrace trace = good;
  trace.groups["2"] = {0, 2};
  EXPECT_TRUE(mentions(refusal_of(trace), "group 2 has rank 2, and there are 2 files"));
}

TEST(Chakra, RefusesOtherFormatsAndNewerSchemas) {
  const std::string version_bytes = from_hex("070a05302e302e34");
  EXPECT_TRUE(mentions(refusal_of_bytes(from_hex("070a05312e302e30")),
                       "t.0.et: is of Chakra's schema version \"1.0.0\"; allowed: 0.0.4"));
  EXPECT_TRUE(mentions(refusal_of_bytes(version_bytes + from_hex("0408011808")),
                       "t.0.et, node 1: node type 8 (STORAGE_NODE) is not read"));
  EXPECT_TRUE(
      mentions(refusal_of_bytes(version_bytes + from_hex("0408011863")), "node type 99 (a type of a newer schema)"));
  EXPECT_TRUE(mentions(refusal_of_bytes(from_hex("0408011804")), "begins without Chakra's GlobalMetadata"));
  // The schema of 2023, whose nodes have attributes in field 11 and texts in field 6.
  EXPECT_TRUE(
      mentions(refusal_of_bytes(from_hex("00") + from_hex("080801180432023132")), "field 6 is not one of schema"));
  EXPECT_TRUE(
      mentions(refusal_of_bytes(from_hex("00") + from_hex("07080118045a0132")), "field 11 is not one of schema"));
  // Files of 2024 without a version, and Chakra's text converter, which called the same fields 1.0.0.
  EXPECT_EQ(parse_chakra_file(from_hex("00") + from_hex("0408011804"), "t.0.et").size(), 1U);
  const std::string schema = "1.0.2-chakra.1.0.0";
  const std::string attribute = "\n\6schema\xea\1" + std::string(1, static_cast<char>(schema.size())) + schema;
  const std::string metadata = "\n" + std::string(1, static_cast<char>(attribute.size())) + attribute;
  EXPECT_EQ(refusal_of_bytes(std::string(1, static_cast<char>(metadata.size())) + metadata + from_hex("0408011804")),
            "");
  EXPECT_TRUE(mentions(refusal_of_bytes(""), "ends within a message"));
  EXPECT_TRUE(mentions(refusal_of_bytes("{\"traceEvents\": []}"), "allowed: a Chakra execution trace"));
  EXPECT_THROW(parse_chakra_groups("[1]", "g.json"), core::Error);
  EXPECT_THROW(parse_chakra_groups("{\"1\": [0, -1]}", "g.json"), core::Error);
  EXPECT_THROW(parse_chakra_groups(R"({"a\nb": [0]})", "g.json"), core::Error);  // its refusals would be two lines
}

TEST(Chakra, ProcessGroupsThatAreNestedDeeplyAreRefused) {
  ChakraNode groups = node_of(1, ChakraType::metadata, {});
  groups.input_values = R"([{"pg_name": "5", "ranks": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}]";
  const ChakraTrace trace{{{groups}}, {}};
  EXPECT_TRUE(mentions(refusal_of(trace), "process groups: nested more deeply than 100 levels")) << refusal_of(trace);
}

// Seeded mutations of bytes: a trace is read, or refused in one line, and never anything else.
TEST(Chakra, SurvivesMutations) {
  const ChakraTrace good = to_chakra(with_a_shift());
  const std::string file = to_chakra_file(good.of_rank[0]);
  constexpr unsigned kSeed = 20260717;
  constexpr int kMutations = 4'000;
  std::mt19937 engine(kSeed);
  const auto random = [&] { return static_cast<unsigned>(engine()); };
  int refused = 0;
  for (int n = 0; n < kMutations; ++n) {
    std::string bytes = file;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      const unsigned way = random() % 4;
      if (way == 0) bytes[at] = static_cast<char>(random());
      if (way == 1) bytes.erase(at, 1 + random() % 20);
      if (way == 2) bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 20));
      if (way == 3) bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      if (bytes.empty()) break;
    }
    const std::string text = core::refusal_of([&] {
      ChakraTrace trace = good;
      trace.of_rank[0] = parse_chakra_file(bytes, "t.0.et");
      step_of(trace);
    });
    if (!text.empty()) ++refused;
    ASSERT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; })) << text;
  }
  EXPECT_GT(refused, kMutations / 2);
}

}  // namespace
}  // namespace lockstep::schedules
