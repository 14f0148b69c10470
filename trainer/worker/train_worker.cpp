#include "trainer/worker/train_worker.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "collectives/transports/paced_link.h"
#include "core/device_cuda.h"
#include "kernels/bucket/bucket.h"
#include "schedules/interpreter/interpreter.h"
#include "workload/memory.h"

namespace lockstep::trainer {
namespace {

using schedules::Copied;
using schedules::GroupKind;
using schedules::HandOver;
using schedules::Lane;
using schedules::Op;
using schedules::Task;
using transports::now_ns;

// polling interval of a thread that waits for another thread of its rank
constexpr auto kNap = std::chrono::microseconds(30);

std::vector<std::uint32_t> sends_before(const schedules::RankStep& rank) {
  std::vector<std::uint32_t> before;
  std::uint32_t sends = 0;
  for (const Task& task : rank.tasks) {
    before.push_back(sends);
    if (schedules::is_send(task.op)) ++sends;
  }
  return before;
}

// A layer's kernel: its part of the stage. A move of weights or gradients: their bucket, which a gather names by its
// unit.
std::string part_text(const Task& task, RankModel& model) {
  if (task.part < 0) return "";
  if (task.op == Op::unshard || task.op == Op::reshard || copies(task, Copied::parameters)) {
    return " bucket " + std::to_string(model.bucket_of_unit(task.stage, task.part));
  }
  const bool of_bucket = task.op == Op::reduce_grad || task.op == Op::optimizer || copies(task, Copied::gradients);
  return (of_bucket ? " bucket " : " part ") + std::to_string(task.part);
}

// Range names for profilers, if the build has them: operation, stage, microbatch, and part or bucket.
std::vector<std::string> names_of(const schedules::RankStep& rank, RankModel& model) {
  std::vector<std::string> names(rank.tasks.size());
  if (!core::trace_ranges_built()) return names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = schedules::text_of(rank.tasks[i]) + part_text(rank.tasks[i], model);
  }
  return names;
}

std::vector<std::int64_t> copied_bytes_of(const schedules::Step& step, const RankModel& model) {
  return workload::copied_bytes(model.shape().model, model.layout(), model.plans(), step, model.rank());
}

std::unique_ptr<EvictedActivations> evictions_of(const schedules::Step& step, const schedules::RankStep& tasks,
                                                 RankModel& model) {
  const auto is_moved = [](const Task& task) { return task.op == Op::evict || task.op == Op::hold; };
  if (std::none_of(tasks.tasks.begin(), tasks.tasks.end(), is_moved)) return nullptr;
  return std::make_unique<EvictedActivations>(model.memory(), tasks, copied_bytes_of(step, model));
}

std::unique_ptr<ActivationCopies> copies_of(const schedules::Step& step, const schedules::RankStep& tasks,
                                            RankModel& model) {
  if (std::none_of(tasks.tasks.begin(), tasks.tasks.end(), schedules::copies_activations)) return nullptr;
  return std::make_unique<ActivationCopies>(model.memory(), model.rooms(model.layout().offload.activations),
                                            workload::slots_of_copies(tasks, copied_bytes_of(step, model)));
}

}  // namespace

TrainWorker::TrainWorker(const schedules::Step& step, RankModel& model)
    : step_(step),
      tasks_(step.of_rank[static_cast<std::size_t>(model.rank())]),
      model_(model),
      end_(model),
      messages_(model.mesh().messages, model.memory().device(), model.lanes()),
      copies_(copies_of(step, tasks_, model)),
      evictions_(evictions_of(step, tasks_, model)),
      order_(tasks_, model.lanes(), model.memory()),
      sends_before_(sends_before(tasks_)),
      microbatches_(schedules::microbatches_of(tasks_)),
      handed_on_(schedules::hand_overs_of(step_, tasks_)),
      names_(names_of(tasks_, model_)),
      spans_(tasks_.tasks.size()) {}

void TrainWorker::give(std::span<const MicrobatchTokens> microbatches, const UpdateRules& rules) {
  for (RankStage& stage : model_.stages()) {
    for (const std::int32_t m : microbatches_[stage.stage]) {
      const MicrobatchTokens& tokens = microbatches[static_cast<std::size_t>(m / step_.slices)];
      stage.model->give(m, tokens.tokens, tokens.targets);
    }
  }
  end_.give(rules);
}

void TrainWorker::begin_step(Mode mode, float gradient_scale) {
  mode_ = mode;
  model_.memory().begin_tasks();
  sends_ended_ = 0;
  if (evictions_) evictions_->begin_step();
  start_ns_ = now_ns();
  order_.begin_step(captures_);
  for (RankStage& stage : model_.stages()) {
    stage.model->begin_step(mode, gradient_scale);
    for (const std::int32_t m : microbatches_[stage.stage]) stage.model->load(m);
    if (mode == Mode::train) stage.store->zero_gradients();
  }
  if (mode == Mode::train) end_.begin_step();
}

void TrainWorker::graph_begins() {
  start_ns_ = now_ns();
}

bool TrainWorker::begin(std::uint32_t task) {
  if (!order_.has_room(task) || has_to_wait(task)) return false;
  spans_[task].start_ns = now_ns();
  const Task& t = tasks_.tasks[task];
  const core::ScopedRange range(names_[task].c_str());
  model_.memory().work_for(task + 1);
  order_.enter(task);
  if (schedules::is_send(t.op)) {
    send(t, task);
  } else if (schedules::is_recv(t.op)) {
    receive(t, task);
  } else {
    run(t, task);
    order_.leave(task);
    return true;
  }
  order_.pause();
  return true;
}

// Even with queued work a few tasks make the rank's thread wait for other ranks: a collective that is made on first
// use, and the end of a step. No message may be pending then, because only this thread can send it.
bool TrainWorker::has_to_wait(std::uint32_t task) const {
  const Task& t = tasks_.tasks[task];
  if (evictions_ && evictions_->owes_answers() && t.stage < 0 && t.comm != schedules::Comm::none) return true;
  if (model_.lanes() == nullptr || sends_before_[task] <= sends_ended_) return false;
  return (t.op == Op::optimizer && t.stage < 0) || t.comm != schedules::Comm::none;
}

// The tensors that a task moves; none if another rank has the stage.
std::vector<parallel::Tensor*> TrainWorker::kept(const Task& task) {
  return model_.find_stage(task.stage) == nullptr ? std::vector<parallel::Tensor*>()
                                                  : model_.stage(task.stage).model->kept(task);
}

void TrainWorker::run(const Task& task, std::uint32_t index) {
  if (copies_activations(task)) {
    copies_->run(task, index, kept(task));
  } else if (task.comm != schedules::Comm::none) {
    run_collective(task);
  } else {
    run_kernel(task);
    if (handed_on_[index] != HandOver::none) hand_over(task, handed_on_[index]);
  }
}

bool TrainWorker::ended(std::uint32_t task) {
  const Task& t = tasks_.tasks[task];
  if (schedules::is_message(t.op) && !message_ended(t, task)) return false;
  spans_[task].end_ns = now_ns();
  return true;
}

void TrainWorker::idle(int thread) {
  if (thread == 0) {
    model_.mesh().messages.idle();
  } else {
    std::this_thread::sleep_for(kNap);
  }
}

void TrainWorker::finish() {
  order_.end_step();
  for (RankStage& stage : model_.stages()) {
    if (stage.plan->place.head && keep_results_) {
      model_.mesh().settle();
      keep_results_(stage, *microbatches_[stage.stage].begin());
    }
    stage.model->end_step();
  }
  if (mode_ == Mode::train) end_.end_step();
  if (!captures_) take_results();
}

// This is the only point in a step where the host waits for the device.
void TrainWorker::take_results() {
  model_.mesh().settle();
  messages_.settle();
  loss_sum_ = 0;
  for (RankStage& stage : model_.stages()) {
    if (!stage.plan->place.head || mode_ == Mode::generate) continue;
    for (const std::int32_t m : microbatches_[stage.stage]) loss_sum_ += stage.model->loss_sum(m);
  }
  if (mode_ == Mode::train) end_.take_results();
}

std::vector<schedules::TaskSpan> TrainWorker::spans() const {
  std::vector<schedules::TaskSpan> spans;
  for (std::uint32_t task = 0; task < spans_.size(); ++task) spans.push_back(span_of(task));
  return spans;
}

schedules::TaskSpan TrainWorker::span_of(std::uint32_t task) const {
  if (captures_) return {};
  if (order_.timed(task)) return order_.span_of(task);
  return {(spans_[task].start_ns - start_ns_) * 1000, (spans_[task].end_ns - start_ns_) * 1000};
}

void TrainWorker::run_kernel(const Task& task) {
  if (task.op == Op::optimizer && task.lane == Lane::host) return end_.delayed_update();
  if (task.op == Op::optimizer && task.stage < 0) return end_.update();
  RankStage& stage = model_.stage(task.stage);
  if (task.op == Op::optimizer && task.part >= 0) return end_.update_bucket(stage, task.part);
  if (task.op == Op::optimizer) return end_.update(stage, task.microbatch);
  if (task.op == Op::reshard) return stage.store->reshard(model_.bucket_of_unit(task.stage, task.part));
  if (copies(task, Copied::parameters)) return stage.store->load(model_.bucket_of_unit(task.stage, task.part));
  if (copies(task, Copied::gradients)) {
    auto& landed = stage.landed[static_cast<std::size_t>(task.part)];
    return stage.store->offload(task.part, std::move(landed), model_.where(task.lane));
  }
  model_.versions().before_kernel(*stage.store, task.microbatch, mode_ == Mode::train);
  stage.model->run(task);
}

void TrainWorker::run_collective(const Task& task) {
  switch (task.op) {
    case Op::layer_collective: {
      GptStage& stage = *model_.stage(task.stage).model;
      exchange_counts(task, stage);
      const GptStage::Exchange exchange = stage.exchange(task);
      model_.collectives().run(step_, task, exchange.input, exchange.output, exchange.matrix, exchange.root);
      stage.exchanged(task);
      return;
    }
    case Op::unshard:
      gather(task);
      return;
    case Op::reduce_grad:
      reduce_gradients(task);
      return;
    default: {
      const kernels::InOut square = end_.own_square(model_.where(task.lane));
      model_.collectives().run(step_, task, square.in(), square.out());
    }
  }
}

void TrainWorker::exchange_counts(const Task& task, GptStage& stage) {
  const GptStage::Exchange counts = stage.exchange_counts(task);
  if (!counts.input.given()) return;
  Task gather = task;
  gather.comm = schedules::Comm::all_gather;
  model_.collectives().run(step_, gather, counts.input, counts.output);
  stage.counts_exchanged(task);
}

void TrainWorker::settle_update() {
  end_.settle();
  if (zero_of(model_.layout()) == 2) gather_weights();
}

void TrainWorker::gather_weights() {
  model_.mesh().settle();
  for (const Task& task : tasks_.tasks) {
    if (task.op == Op::unshard) gather(task);
  }
  model_.mesh().settle();
}

void TrainWorker::gather(const Task& task) {
  using From = parallel::ParameterStore::GatherFrom;
  const bool in_secondary = step_.groups[static_cast<std::size_t>(task.peer)].kind == GroupKind::secondary;
  auto gathering =
      model_.stage(task.stage)
          .store->gather(model_.bucket_of_unit(task.stage, task.part), in_secondary ? From::secondary : From::shards);
  model_.collectives().run(step_, task, gathering.shard(), gathering.whole());
  std::move(gathering).done();
}

// Sums overlap with the kernels in the rank's own thread.
void TrainWorker::reduce_gradients(const Task& task) {
  const GroupKind kind = step_.groups[static_cast<std::size_t>(task.peer)].kind;
  if (kind == GroupKind::data || kind == GroupKind::expert_data || kind == GroupKind::replicas) {
    RankStage& stage = model_.stage(task.stage);
    auto& landed = stage.landed[static_cast<std::size_t>(task.part)];
    if (kind != GroupKind::replicas) {
      auto reduction = stage.store->reduce(task.part);
      model_.collectives().run(step_, task, reduction.whole(), reduction.result());
      landed = std::move(reduction).landed();
      if (replicas_of(model_.layout()) > 1) return;  // a task over the replicas ends it
    } else {
      model_.collectives().run(step_, task, landed.shard().in(), landed.shard().out());
    }
    // If gradients are offloaded, the task that copies them ends it.
    if (model_.layout().offload.gradients == workload::Offload::none) std::move(landed).add(model_.where(task.lane));
    return;
  }
  const kernels::Context where = model_.where(task.lane);
  const kernels::InOut packed = end_.pack(kind, where);
  if (!packed.given()) return;
  model_.collectives().run(step_, task, packed.in(), packed.out());
  end_.unpack(kind, where);
}

// Memory stays with the stage until the message has been sent.
void TrainWorker::send(const Task& task, std::uint32_t index) {
  if (!schedules::is_between_stages(task.op)) {
    return messages_.send(index, task, evictions_->sent(task, index, kept(task)));
  }
  GptStage& stage = *model_.stage(task.stage).model;
  const kernels::In what =
      task.op == Op::send_activations ? stage.activations_out(task.microbatch) : stage.gradient_out(task.microbatch);
  messages_.send(index, task, what);
}

void TrainWorker::receive(const Task& task, std::uint32_t index) {
  if (!schedules::is_between_stages(task.op)) return messages_.receive(index, task, evictions_->received(task, index));
  GptStage& stage = *model_.stage(task.stage).model;
  const kernels::Out where =
      task.op == Op::recv_activations ? stage.activations_in(task.microbatch) : stage.gradient_in(task.microbatch);
  messages_.receive(index, task, where);
}

bool TrainWorker::message_ended(const Task& task, std::uint32_t index) {
  order_.resume(index);
  model_.memory().work_for(index + 1);
  const bool has_ended = messages_.ended(index);
  if (has_ended) {
    if (task.op == Op::send_activations) model_.stage(task.stage).model->activations_sent(task.microbatch);
    if (task.op == Op::send_gradient) model_.stage(task.stage).model->gradient_sent(task.microbatch);
    if (!schedules::is_between_stages(task.op)) evictions_->ended(task, index, kept(task));
    if (schedules::is_send(task.op)) ++sends_ended_;
    order_.leave(index);
  } else {
    order_.pause();
  }
  return has_ended;
}

void TrainWorker::hand_over(const Task& task, HandOver what) {
  GptStage& from = *model_.stage(task.stage).model;
  if (what == HandOver::activations) {
    GptStage& to = *model_.stage(task.stage + 1).model;
    copy(from.activations_out(task.microbatch), to.activations_in(task.microbatch));
    from.activations_sent(task.microbatch);
  } else {
    GptStage& to = *model_.stage(task.stage - 1).model;
    copy(from.gradient_out(task.microbatch), to.gradient_in(task.microbatch));
    from.gradient_sent(task.microbatch);
  }
}

void TrainWorker::copy(const kernels::In& from, const kernels::Out& to) {
  kernels::PackBucket pack;
  pack.counts = {from.elems};
  pack.pieces = {from};
  pack.bucket = to;
  kernels::run(pack, model_.where());
}

}  // namespace lockstep::trainer
