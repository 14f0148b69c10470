#include "schedules/step/traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {
namespace {

// Chrome's reserved colour names. Perfetto derives colours from task names without their numbers.
std::string_view colour_of(const Task& task) {
  if (task.lane != Lane::compute) return "grey";
  switch (task.op) {
    case Op::forward:
      return "thread_state_runnable";
    case Op::backward:
      return "good";
    case Op::input_gradient:
      return "thread_state_iowait";
    case Op::weight_gradient:
      return "rail_response";
    case Op::curvature:
      return "rail_idle";
    case Op::inversion:
      return "rail_animation";
    default:
      return "generic_work";
  }
}

std::string part_of(const Task& task, std::string_view word) {
  if (task.part >= 0) return fmt::format(" {} {}", word, task.part);
  return task.stage >= 0 ? fmt::format(" stage {}", task.stage) : "";
}

// Label of a task: 0F1, 0F1 layer 2, all_reduce 0F1, bucket 2.
std::string title_of(const Task& task, std::int32_t slices) {
  if (is_compute(task.op) || is_message(task.op) || is_filler(task.op) || task.op == Op::recompute) {
    const std::string token = token_of({task.op, task.stage, task.microbatch}, slices);
    return task.part < 0 ? token : fmt::format("{} layer {}", token, task.part);
  }
  if (task.op == Op::layer_collective) return std::string(name_of(task.comm)) + part_of(task, "layer");
  if (task.op == Op::reduce_grad) return std::string(name_of(task.comm)) + part_of(task, "bucket");
  return std::string(name_of(task.op)) + part_of(task, "unit");
}

// Names a task of another program's step in words that belong to no step. Collectives share lanes.
std::string_view kind_of(const Task& task) {
  if (task.comm != Comm::none) return "collective";
  if (task.lane == Lane::copy) return "memory";
  return name_of(task.lane);
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::int64_t nanoseconds(std::int64_t ps) {
  return (ps + 500) / 1000;
}
std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

class TraceWriter {
 public:
  void add(const TracePart& part) {
    const Step& step = *part.step;
    LOCKSTEP_CHECK(part.timeline->size() == step.of_rank.size(), "a timeline has a list for each rank");
    number_arrows(step);
    for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
      LOCKSTEP_CHECK((*part.timeline)[r].size() == step.of_rank[r].tasks.size(), "a timeline has a span for each task");
      name_process(part, r);
      for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) add_task(part, r, i);
    }
    for (const TraceCounter& counter : part.counters) add_counter(counter);
    first_process_ += step.of_rank.size();
  }

  // Sorted by time. Where times are equal, messages arrive after all else: Perfetto draws no arrow that ends before it
  // begins. An arrow's end directly follows its task, to which Perfetto then binds it.
  std::string finish() {
    std::stable_sort(events_.begin(), events_.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return std::pair(a.ns, a.arrives) < std::pair(b.ns, b.arrives);
    });
    std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
    for (const TraceEvent& event : events_) text += (&event == events_.data() ? "\n{" : ",\n{") + event.text + '}';
    return text + "\n]}\n";
  }

 private:
  struct TraceEvent {
    std::int64_t ns;
    bool arrives;
    std::string text;
  };

  // Ids of processes and threads are all different, as Perfetto requires; to it, 0 is the idle process.
  std::size_t process_of(std::size_t rank) const { return first_process_ + rank; }
  std::size_t thread_of(std::size_t rank, Lane lane) const {
    return kThreads * process_of(rank) + static_cast<std::size_t>(lane);
  }

  void name_process(const TracePart& part, std::size_t rank) {
    const std::size_t process = process_of(rank);
    name("process", fmt::format(R"("pid":{})", process), fmt::format("{} rank {}", part.title, rank), process);
    for (std::size_t l = 0; l < kNumLanes; ++l) {
      const auto lane = static_cast<Lane>(l);
      const auto& tasks = part.step->of_rank[rank].tasks;
      const auto found = std::find_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.lane == lane; });
      if (found == tasks.end()) continue;
      const std::string_view title = part.names.empty() ? name_of(lane) : kind_of(*found);
      name("thread", fmt::format(R"("pid":{},"tid":{})", process, thread_of(rank, lane)), title, l);
    }
  }
  void name(std::string_view what, std::string_view whose, std::string_view text, std::size_t place) {
    constexpr std::string_view kFormat = R"("ph":"M","name":"{}_{}",{},"args":{{"{}":{}}})";
    events_.push_back({0, false, fmt::format(kFormat, what, "name", whose, "name", nlohmann::json(text).dump())});
    events_.push_back({0, false, fmt::format(kFormat, what, "sort_index", whose, "sort_index", place)});
  }

  void add_task(const TracePart& part, std::size_t rank, std::size_t index) {
    const Task& task = part.step->of_rank[rank].tasks[index];
    const TaskSpan& span = (*part.timeline)[rank][index];
    const std::int64_t start = nanoseconds(span.start_ps), end = nanoseconds(span.end_ps);
    const std::string place = fmt::format(R"("pid":{},"tid":{})", process_of(rank), thread_of(rank, task.lane));
    const bool is_named = !part.names.empty();
    const std::string name = is_named ? part.names[rank][index] : title_of(task, part.step->slices);
    events_.push_back({start, is_recv(task.op),
                       fmt::format(R"("ph":"X",{},"name":{},"cat":"{}","cname":"{}","ts":{},"dur":{},"args":{{{}}})",
                                   place, json_text(name), is_named ? kind_of(task) : name_of(task.op), colour_of(task),
                                   microseconds(start), microseconds(end - start), arguments_of(part, task))});
    if (is_send(task.op)) add_arrow_end("s", place, static_cast<std::size_t>(task.peer), task.tag, start);
    if (is_recv(task.op)) add_arrow_end("f", place, rank, task.tag, end);
  }

  static std::string arguments_of(const TracePart& part, const Task& task) {
    const Step& step = *part.step;
    const bool is_slice = step.slices > 1 && task.microbatch >= 0;
    const std::int32_t microbatch = is_slice ? task.microbatch / step.slices : task.microbatch;
    std::string text = fmt::format(R"("stage":{},"microbatch":{},"part":{})", task.stage, microbatch, task.part);
    if (is_slice) text += fmt::format(R"(,"slice":{})", task.microbatch % step.slices);
    const bool is_message = is_send(task.op) || is_recv(task.op);
    if (is_message) text += fmt::format(R"(,"peer":{})", task.peer);
    if (is_message || task.comm != Comm::none) text += fmt::format(R"(,"bytes":{})", task.amount);
    if (task.comm == Comm::none) return text;
    text += fmt::format(R"(,"collective":"{}")", name_of(task.comm));
    const auto group = static_cast<std::size_t>(task.peer);
    if (group < step.groups.size() && part.names.empty())
      text += fmt::format(R"(,"group":"{}")", name_of(step.groups[group].kind));
    return text;
  }

  // An arrow per receive, from the start of the send to the end of the receive.
  void number_arrows(const Step& step) {
    first_arrow_ = {first_arrow_.back()};
    for (const RankStep& rank : step.of_rank) {
      const auto receives =
          std::count_if(rank.tasks.begin(), rank.tasks.end(), [](const Task& t) { return is_recv(t.op); });
      first_arrow_.push_back(first_arrow_.back() + receives);
    }
  }
  void add_arrow_end(std::string_view phase, std::string_view place, std::size_t receiver, std::int32_t tag,
                     std::int64_t ns) {
    const std::int64_t arrow = first_arrow_.at(receiver) + tag;
    LOCKSTEP_CHECK(tag >= 0 && arrow < first_arrow_.at(receiver + 1), "a message is one of its receiver's receives");
    events_.push_back({ns, phase == "f",
                       fmt::format(R"("ph":"{}","bp":"e",{},"id":{},"name":"message","cat":"message","ts":{})", phase,
                                   place, arrow, microseconds(ns))});
  }

  void add_counter(const TraceCounter& counter) {
    const std::string name = nlohmann::json(counter.name).dump();
    const std::size_t process = process_of(static_cast<std::size_t>(counter.rank));
    for (const TraceCounter::Point& point : counter.points) {
      const std::int64_t ns = nanoseconds(point.time_ps);
      events_.push_back({ns, false,
                         fmt::format(R"("ph":"C","name":{},"pid":{},"ts":{},"args":{{"value":{}}})", name, process,
                                     microseconds(ns), point.value)});
    }
  }

  static constexpr std::size_t kThreads = kNumLanes + 1;
  std::vector<TraceEvent> events_;
  std::size_t first_process_ = 1;
  std::vector<std::int64_t> first_arrow_{1};  // per rank; the last entry belongs to the next part's first rank
};

}  // namespace

std::string to_trace(std::span<const TracePart> parts) {
  TraceWriter writer;
  for (const TracePart& part : parts) writer.add(part);
  return writer.finish();
}

std::string to_trace(const Step& step, const StepTimeline& timeline, const std::string& title,
                     std::span<const TraceCounter> counters) {
  const TracePart part{title, &step, &timeline, counters};
  return to_trace(std::span(&part, 1));
}

}  // namespace lockstep::schedules
