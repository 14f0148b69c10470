#include "collectives/plan/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/plan/msccl_parts.h"
#include "core/error.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

using collectives::Kind;

// MSCCL's names of collectives, and whether nchunksperloop counts the chunks of all blocks or of one.
struct NamedCollective {
  std::string_view name;
  Kind kind;
  bool counts_all_blocks;
};
constexpr std::array kCollectives{
    NamedCollective{"allreduce", Kind::all_reduce, false},
    NamedCollective{"allgather", Kind::all_gather, true},
    NamedCollective{"reducescatter", Kind::reduce_scatter, true},
    NamedCollective{"alltoall", Kind::all_to_all, true},
    NamedCollective{"broadcast", Kind::broadcast, false},
    NamedCollective{"reduce", Kind::reduce, false},
    NamedCollective{"gather", Kind::gather, false},
    NamedCollective{"scatter", Kind::scatter, false},
};
// msccl-tools writes this name; the runtime reads the one above.
constexpr std::string_view kReduceScatterOfTools = "reduce_scatter";

// A step of a file: it receives (and stores, adds and stores, or only adds) or works on memory, and then sends.
struct StepType {
  std::string_view name;
  std::optional<Op> op;  // none for "s" and "nop"
  bool sends;
  bool stores;  // false: the sum is only sent on
};
constexpr std::array kStepTypes{
    StepType{"s", {}, true, true},
    StepType{"r", Op::recv, false, true},
    StepType{"rcs", Op::recv, true, true},
    StepType{"rrc", Op::recv_reduce, false, true},
    StepType{"rrs", Op::recv_reduce, true, false},
    StepType{"rrcs", Op::recv_reduce, true, true},
    StepType{"cpy", Op::copy, false, true},
    StepType{"re", Op::reduce, false, true},
    StepType{"nop", {}, false, true},
};
constexpr std::array<std::pair<std::string_view, Buffer>, 3> kBufferNames{
    {{"i", Buffer::input}, {"o", Buffer::output}, {"s", Buffer::scratch}}};
constexpr std::array<std::string_view, 3> kProtocols{"Simple", "LL", "LL128"};

// Limits, so that no file takes all memory.
constexpr int kMostChunks = 32767;  // per buffer: the runtime keeps offsets in 16 bits
constexpr int kMostRanks = 4096;
constexpr int kMostChannels = 64;
// Chunks of a rank's buffers times its thread blocks; likewise chunks of all ranks.
constexpr std::int64_t kMostPlaces = 1 << 25;
constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

// The children, all of one name, in the order of their ids, which are 0 to their number - 1.
std::vector<const XmlElement*> by_id(const XmlElement& parent, std::string_view name, std::string_view source) {
  const int count = static_cast<int>(parent.children.size());
  std::vector<const XmlElement*> of_id(parent.children.size(), nullptr);
  for (const XmlElement& child : parent.children) {
    if (child.name != name) {
      throw core::usage_error(
          fmt::format("{}:{}: found <{}>; allowed: <{}>", source, child.line, shown_in_message(child.name), name));
    }
    const auto it = child.attributes.find("id");
    int id = -1;
    if (it != child.attributes.end()) std::from_chars(it->second.data(), it->second.data() + it->second.size(), id);
    if (id < 0 || id >= count || of_id[at(id)] != nullptr) {
      throw core::usage_error(fmt::format(
          "{}:{}: <{}> has {}; allowed: each id from 0 to {} once", source, child.line, shown_in_message(child.name),
          it == child.attributes.end() ? "no id" : fmt::format("id=\"{}\"", shown_in_message(it->second)), count - 1));
    }
    of_id[at(id)] = &child;
  }
  return of_id;
}

class MscclReader {
 public:
  MscclReader(const XmlElement& algo, std::string_view source) : algo_(algo), source_(source) {}

  ThreadBlocks read() {
    const std::vector<const XmlElement*> gpus = header();
    for (int rank = 0; rank < made_.plan.num_ranks; ++rank) gpu(rank, *gpus[at(rank)]);
    place_passing();
    return std::move(made_);
  }

 private:
  // A step that waits: resolved when all thread blocks of the rank are read.
  struct ParsedStep {
    int first = 0;  // its steps in the plan
    int end = 0;
    bool is_signalled = false;  // hasdep
    int line = 0;
  };
  struct UnresolvedWait {
    int block;
    int step;  // in the plan
    After in_file;
    int line;
  };

  // Returns the gpu elements, by rank.
  std::vector<const XmlElement*> header() {
    const XmlAttributes of(algo_, source_, "algo",
                           {"name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace",
                            "minBytes", "maxBytes", "root"});
    std::vector<const XmlElement*> gpus = by_id(algo_, "gpu", source_);
    Plan& plan = made_.plan;
    const NamedCollective& collective = collective_of(of);
    plan.kind = collective.kind;
    if (const std::string* const name = of.find("name")) plan.algorithm = one_word(*name);
    of.entry("proto", kProtocols, [](std::string_view protocol) { return protocol; });
    of.integer_or(1, "nchannels", 0, kMostChunks);
    of.long_integer_or(0, "minBytes", 0, kMostBytes);
    of.long_integer_or(0, "maxBytes", -1, kMostBytes);
    plan.num_ranks = of.integer("ngpus", 1, kMostRanks);
    if (at(plan.num_ranks) != gpus.size()) {
      of.fail("ngpus", fmt::format("{}, the number of <gpu>", gpus.size()));
    }
    plan.root = collectives::has_root(plan.kind) ? of.integer_or(0, "root", 0, plan.num_ranks - 1) : 0;
    const int chunks = of.integer("nchunksperloop", 1, kMostChunks);
    const int blocks = collective.counts_all_blocks ? plan.num_ranks : 1;
    if (chunks % blocks != 0) of.fail("nchunksperloop", fmt::format("multiples of {}, the number of <gpu>", blocks));
    plan.chunks_per_block = chunks / blocks;
    made_.in_place = of.integer("inplace", 0, 1) == 1;
    made_.out_of_place = of.integer_or(made_.in_place ? 0 : 1, "outofplace", 0, 1) == 1;
    if (!made_.in_place && !made_.out_of_place) of.fail("outofplace", "1 if inplace is 0");
    plan.ranks.resize(at(plan.num_ranks));
    made_.blocks.resize(at(plan.num_ranks));
    made_.lines.resize(at(plan.num_ranks));
    passing_.resize(at(plan.num_ranks));
    return gpus;
  }

  static const NamedCollective& collective_of(const XmlAttributes& of) {
    const auto name = [&of](const NamedCollective& collective) {
      const bool as_tools = collective.kind == Kind::reduce_scatter && of.find("coll") != nullptr &&
                            *of.find("coll") == kReduceScatterOfTools;
      return as_tools ? kReduceScatterOfTools : collective.name;
    };
    return of.entry("coll", kCollectives, name);
  }

  static std::string one_word(const std::string& name) {
    std::string word;
    for (const char c : name) word += c > ' ' && c <= '~' && c != '#' ? c : '_';
    return word == "-" ? "" : word;
  }

  void gpu(int rank, const XmlElement& element) {
    const XmlAttributes of(element, source_, "gpu", {"id", "i_chunks", "o_chunks", "s_chunks"});
    of.integer("i_chunks", 0, input_chunks(made_.plan, rank));
    of.integer("o_chunks", 0, output_chunks(made_.plan, rank));
    // Each rank has as much scratch as the one with the most.
    made_.plan.scratch_chunks = std::max(made_.plan.scratch_chunks, of.integer("s_chunks", 0, kMostChunks));
    const auto blocks = by_id(element, "tb", source_);
    refuse_large(of, rank, blocks.size());
    auto& lanes = made_.plan.ranks[at(rank)].lanes;
    lanes.resize(blocks.size());
    made_.lines[at(rank)].resize(blocks.size());
    entries_.assign(blocks.size(), {});
    waiting_.clear();
    for (std::size_t b = 0; b < blocks.size(); ++b) block(rank, static_cast<int>(b), *blocks[b]);
    refuse_shared_connections(rank, blocks);
    for (const UnresolvedWait& waiting : waiting_) {
      Step& step = lanes[at(waiting.block)][at(waiting.step)];
      if (const auto after = resolved(waiting)) step.after.push_back(*after);
    }
  }

  void refuse_large(const XmlAttributes& of, int rank, std::size_t blocks) {
    const std::int64_t chunks =
        input_chunks(made_.plan, rank) + output_chunks(made_.plan, rank) + made_.plan.scratch_chunks;
    places_ += chunks;
    const std::int64_t of_rank = chunks * static_cast<std::int64_t>(std::max<std::size_t>(1, blocks));
    if (of_rank <= kMostPlaces && places_ <= kMostPlaces) return;
    throw core::usage_error(
        fmt::format("{}:{}: the chunks of a gpu times its tb, or those of all gpus, are more than {}", source_,
                    of.line(), kMostPlaces));
  }

  void block(int rank, int index, const XmlElement& element) {
    const XmlAttributes of(element, source_, "tb", {"id", "send", "recv", "chan"});
    const int last = made_.plan.num_ranks - 1;
    made_.blocks[at(rank)].push_back(
        {of.integer("send", -1, last), of.integer("recv", -1, last), of.integer("chan", -1, kMostChannels - 1)});
    std::vector<After> nops;  // nops carry the waits of the step after them
    for (std::size_t s = 0; s < element.children.size(); ++s) {
      step(rank, index, static_cast<int>(s), element.children[s], nops);
    }
  }

  void step(int rank, int block, int index, const XmlElement& element, std::vector<After>& nops) {
    const XmlAttributes of(element, source_, "step",
                           {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"});
    if (of.integer("s", 0, kMostChunks) != index) of.fail("s", fmt::format("{} (steps come in order)", index));
    const StepType& type = of.entry("type", kStepTypes, [](const StepType& t) { return t.name; });
    const After waits{of.integer("depid", -1, kMostChunks), of.integer("deps", -1, kMostChunks)};
    if (waits.lane >= 0) nops.push_back(waits);
    Lane& lane = made_.plan.ranks[at(rank)].lanes[at(block)];
    ParsedStep entry{static_cast<int>(lane.size()), 0, of.integer("hasdep", 0, 1) == 1, of.line()};
    if (type.op || type.sends) {
      for (const After& after : std::exchange(nops, {})) waiting_.push_back({block, entry.first, after, of.line()});
      add(type, of, made_.blocks[at(rank)][at(block)], rank, lane);
    }
    entry.end = static_cast<int>(lane.size());
    made_.lines[at(rank)][at(block)].resize(lane.size(), of.line());
    entries_[at(block)].push_back(entry);
  }

  void add(const StepType& type, const XmlAttributes& of, const ThreadBlock& block, int rank, Lane& lane) {
    const int count = of.integer("cnt", 1, kMostChunks);
    const Slice src = slice(of, "srcbuf", "srcoff", count, !type.op || reads_src(*type.op));
    Slice dst = slice(of, "dstbuf", "dstoff", count, type.op && type.stores);
    if (!type.stores) {
      dst = {Buffer::scratch, kPassing - passing_[at(rank)], count};
      passing_[at(rank)] += count;
    }
    if (type.op) {
      const bool receives = reads_peer(*type.op);
      if (receives && block.recv_from < 0) of.fail("type", "no type that receives, as the tb has recv=\"-1\"");
      lane.push_back({*type.op, receives ? block.recv_from : -1, src, dst, {}});
    }
    if (!type.sends) return;
    if (block.send_to < 0) of.fail("type", "no type that sends, as the tb has send=\"-1\"");
    lane.push_back({Op::send, block.send_to, type.op ? dst : src, {}, {}});
  }

  static Slice slice(const XmlAttributes& of, std::string_view buffer, std::string_view offset, int count,
                     bool is_used) {
    const auto& named = of.entry(buffer, kBufferNames, [](const auto& pair) { return pair.first; });
    const int first = of.integer(offset, is_used ? 0 : -1, kMostChunks);
    return is_used ? Slice{named.second, first, count} : Slice{};
  }

  // A connection has one thread block at each end: two would mix up their messages.
  void refuse_shared_connections(int rank, const std::vector<const XmlElement*>& elements) const {
    std::set<std::pair<int, int>> sends;  // (peer, channel)
    std::set<std::pair<int, int>> recvs;
    const auto add = [&](auto& known, int peer, std::size_t b, const char* verb) {
      const int channel = made_.blocks[at(rank)][b].channel;
      if (known.insert({peer, channel}).second) return;
      throw core::usage_error(fmt::format("{}:{}: gpu {} has a second tb that {} rank {} on channel {}; allowed: one",
                                          source_, elements[b]->line, rank, verb, peer, channel));
    };
    for (std::size_t b = 0; b < elements.size(); ++b) {
      const Lane& lane = made_.plan.ranks[at(rank)].lanes[b];
      const auto sending = [](const Step& step) { return step.op == Op::send; };
      const auto receiving = [](const Step& step) { return reads_peer(step.op); };
      const ThreadBlock& block = made_.blocks[at(rank)][b];
      if (std::any_of(lane.begin(), lane.end(), sending)) add(sends, block.send_to, b, "sends to");
      if (std::any_of(lane.begin(), lane.end(), receiving)) add(recvs, block.recv_from, b, "receives from");
    }
  }

  // The step of the plan that a wait ends with: the first one from the named step on that signals (hasdep). None: it is
  // done anyway, as it stands before the waiting step.
  std::optional<After> resolved(const UnresolvedWait& waiting) const {
    const auto refuse = [&](const std::string& why) {
      throw core::usage_error(fmt::format("{}:{}: waits (depid, deps) for tb {} step {}, {}", source_, waiting.line,
                                          waiting.in_file.lane, waiting.in_file.step, why));
    };
    const std::size_t block = at(waiting.in_file.lane);
    if (block >= entries_.size()) refuse(fmt::format("but the gpu has {} tb", entries_.size()));
    const auto& entries = entries_[block];
    if (waiting.in_file.step < 0 || at(waiting.in_file.step) >= entries.size()) {
      refuse(fmt::format("but the tb has {} steps", entries.size()));
    }
    const auto signals = [](const ParsedStep& entry) { return entry.is_signalled && entry.end > entry.first; };
    const auto it = std::find_if(entries.begin() + waiting.in_file.step, entries.end(), signals);
    if (it == entries.end())
      refuse("and no step there from that one on has hasdep=\"1\": the runtime would wait forever");
    if (waiting.in_file.lane != waiting.block) return After{waiting.in_file.lane, it->end - 1};
    if (it->end - 1 >= waiting.step) refuse("its own tb's later step");
    return std::nullopt;
  }

  // Puts what is only sent on after the scratch of the file.
  void place_passing() {
    const int begin = made_.plan.scratch_chunks;
    for (RankSteps& rank : made_.plan.ranks) {
      for (Lane& lane : rank.lanes) {
        for (Step& step : lane) {
          for (Slice* slice : {&step.src, &step.dst}) {
            if (slice->first <= kPassing) slice->first = begin + kPassing - slice->first;
          }
        }
      }
    }
    made_.plan.scratch_chunks += *std::max_element(passing_.begin(), passing_.end());
  }

  static constexpr int kPassing = -1;  // chunk c of what is only sent on is kPassing - c, until place_passing()

  const XmlElement& algo_;
  std::string_view source_;
  ThreadBlocks made_;
  std::int64_t places_ = 0;                       // chunks of the ranks so far
  std::vector<int> passing_;                      // [rank] chunks
  std::vector<std::vector<ParsedStep>> entries_;  // [thread block][step of the file], the current rank's
  std::vector<UnresolvedWait> waiting_;           // the current rank's
};

}  // namespace

Plan parse_msccl(std::string_view text, std::string_view source, StepLines* lines) {
  const XmlElement algo = parse_xml(text, source);
  return join_channels(MscclReader(algo, source).read(), source, lines);
}

namespace {

std::string_view letter_of(Buffer buffer) {
  const auto is_it = [buffer](const auto& named) { return named.second == buffer; };
  return std::find_if(kBufferNames.begin(), kBufferNames.end(), is_it)->first;
}

const StepType& type_of(const Step& step, bool sends_on) {
  const auto is_it = [&](const StepType& type) {
    if (step.op == Op::send) return type.name == "s";
    return type.op == step.op && type.sends == sends_on && type.stores;
  };
  return *std::find_if(kStepTypes.begin(), kStepTypes.end(), is_it);
}

class MscclWriter {
 public:
  explicit MscclWriter(const ThreadBlocks& blocks) : plan_(blocks.plan), blocks_(blocks) {
    struct Ends {
      std::vector<const Step*> sends;  // first in, first out
      std::vector<const Step*> recvs;
    };
    std::map<std::tuple<int, int, int>, Ends> connections;  // by (from, to, channel)
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      const auto& lanes = plan_.ranks[at(rank)].lanes;
      for (std::size_t b = 0; b < lanes.size(); ++b) {
        const int channel = blocks.blocks[at(rank)][b].channel;
        channels_ = std::max(channels_, channel + 1);
        for (const Step& step : lanes[b]) {
          if (step.op == Op::send) connections[{rank, step.peer, channel}].sends.push_back(&step);
          if (reads_peer(step.op)) connections[{step.peer, rank, channel}].recvs.push_back(&step);
        }
      }
    }
    for (const auto& [connection, ends] : connections) {
      for (std::size_t m = 0; m < ends.sends.size(); ++m) {
        other_end_[ends.sends[m]] = ends.recvs[m];
        other_end_[ends.recvs[m]] = ends.sends[m];
      }
    }
  }

  std::string text(const NamedCollective& collective) {
    const int blocks = collective.counts_all_blocks ? plan_.num_ranks : 1;
    text_ = fmt::format(R"(<algo name="{}" proto="Simple" nchannels="{}" nchunksperloop="{}" ngpus="{}" coll="{}")",
                        xml_escaped(plan_.algorithm), channels_, plan_.chunks_per_block * blocks, plan_.num_ranks,
                        collective.name);
    text_ +=
        fmt::format(R"( inplace="{}" outofplace="1" minBytes="0" maxBytes="{}")", blocks_.in_place ? 1 : 0, kAnySize);
    if (collectives::has_root(plan_.kind)) text_ += fmt::format(R"( root="{}")", plan_.root);
    text_ += ">\n";
    for (int rank = 0; rank < plan_.num_ranks; ++rank) gpu(rank);
    return text_ + "</algo>\n";
  }

 private:
  static constexpr std::int64_t kAnySize = std::int64_t{1} << 40;  // bytes

  // A step of the file; `after` names a step of the plan.
  struct Row {
    std::string_view type;
    Slice src;
    Slice dst;
    After after;
    bool is_awaited = false;
  };
  struct WrittenBlock {
    std::vector<Row> rows;
    std::vector<std::size_t> row_of;  // [step of the plan]
  };

  void gpu(int rank) {
    text_ += fmt::format(R"(  <gpu id="{}" i_chunks="{}" o_chunks="{}" s_chunks="{}">)", rank,
                         input_chunks(plan_, rank), output_chunks(plan_, rank), plan_.scratch_chunks);
    text_ += "\n";
    const auto& lanes = plan_.ranks[at(rank)].lanes;
    std::vector<WrittenBlock> blocks;
    for (const Lane& lane : lanes) blocks.push_back(rows(lane));
    for (const Lane& lane : lanes) {
      for (const Step& step : lane) {
        for (const After& after : step.after) {
          WrittenBlock& awaited = blocks[at(after.lane)];
          awaited.rows[awaited.row_of[at(after.step)]].is_awaited = true;
        }
      }
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const ThreadBlock& block = blocks_.blocks[at(rank)][b];
      text_ += fmt::format(R"(    <tb id="{}" send="{}" recv="{}" chan="{}">)", b, block.send_to, block.recv_from,
                           block.channel);
      text_ += "\n";
      for (std::size_t s = 0; s < blocks[b].rows.size(); ++s) {
        const After& after = blocks[b].rows[s].after;
        write(s, blocks[b].rows[s],
              after.lane < 0 ? -1 : static_cast<int>(blocks[at(after.lane)].row_of[at(after.step)]));
      }
      text_ += "    </tb>\n";
    }
    text_ += "  </gpu>\n";
  }

  // A send that only passes on what the step before it received is one with it. Each wait but a step's last one is a
  // nop.
  WrittenBlock rows(const Lane& lane) const {
    WrittenBlock block;
    for (std::size_t s = 0; s < lane.size(); ++s) {
      const Step& step = lane[s];
      const bool passes_on = step.op == Op::send && step.after.empty() && s > 0 && reads_peer(lane[s - 1].op) &&
                             lane[s - 1].dst == step.src;
      if (passes_on) {
        block.rows.back().type = type_of(lane[s - 1], true).name;
      } else {
        for (std::size_t i = 0; i + 1 < step.after.size(); ++i) block.rows.push_back({"nop", {}, {}, step.after[i]});
        const Slice src = step.op == Op::recv ? other_end_.at(&step)->src : step.src;
        const Slice dst = step.op == Op::send ? other_end_.at(&step)->dst : step.dst;
        block.rows.push_back({type_of(step, false).name, src, dst, step.after.empty() ? After{} : step.after.back()});
      }
      block.row_of.push_back(block.rows.size() - 1);
    }
    return block;
  }

  void write(std::size_t index, const Row& row, int awaited_row) {
    const bool is_nop = row.type == "nop";
    text_ += fmt::format(R"(      <step s="{}" type="{}" srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="{}")",
                         index, row.type, letter_of(row.src.buffer), is_nop ? -1 : row.src.first,
                         letter_of(row.dst.buffer), is_nop ? -1 : row.dst.first, row.src.count);
    text_ += fmt::format(R"( depid="{}" deps="{}" hasdep="{}"/>)", row.after.lane, awaited_row, row.is_awaited ? 1 : 0);
    text_ += "\n";
  }

  const Plan& plan_;
  const ThreadBlocks& blocks_;
  std::map<const Step*, const Step*> other_end_;  // the step that receives what a step sends, and back
  int channels_ = 0;
  std::string text_;
};

}  // namespace

std::string to_msccl(const Plan& plan) {
  const Kind kind = plan.kind == Kind::hypercube ? Kind::all_gather : plan.kind;  // it leaves the same result
  const auto is_it = [kind](const NamedCollective& collective) { return collective.kind == kind; };
  const auto* const collective = std::find_if(kCollectives.begin(), kCollectives.end(), is_it);
  if (collective == kCollectives.end()) {
    std::string allowed;
    for (const NamedCollective& known : kCollectives)
      allowed += std::string(allowed.empty() ? "" : ", ") + std::string(name_of(known.kind));
    throw core::usage_error(
        fmt::format("{} has no form in MSCCL XML; allowed: {}, hypercube", name_of(plan.kind), allowed));
  }
  const ThreadBlocks blocks = split_lanes(plan);
  return MscclWriter(blocks).text(*collective);
}

Plan parse_any_plan(std::string_view text, std::string_view source, StepLines* lines) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_xml = begin != std::string_view::npos && (text[begin] == '<' || text[begin] == '\xEF');
  return is_xml ? parse_msccl(text, source, lines) : parse_plan(text, source, lines);
}

}  // namespace lockstep::plan
