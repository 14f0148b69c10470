#include "trainer/train/step_graph.h"

#include "core/capture.h"

namespace lockstep::trainer {

StepGraph::StepGraph(TrainWorker& worker, RankModel& model)
    : worker_(worker), model_(model), stream_(model.lanes()->stream(schedules::Lane::compute)) {}

void StepGraph::run(float gradient_scale, const std::function<void()>& interpret,
                    const std::function<void()>& rehearse_rest) {
  if (graph_ == nullptr || gradient_scale_ != gradient_scale) {
    gradient_scale_ = gradient_scale;
    record(interpret);
    rehearse_rest();
    model_.mesh().messages.barrier();
  } else {
    model_.collectives().count_again(sent_bytes_);
  }
  worker_.graph_begins();
  graph_->launch(stream_);
  worker_.take_results();
}

// Capturing may allocate device memory, which may wait for running work. No rank launches before all have captured,
// because its collectives would wait for ranks that have not. Memory of the previous graph is available again only once
// the device is known to be done with it.
void StepGraph::record(const std::function<void()>& interpret) {
  graph_.reset();
  model_.mesh().settle();
  const StepCollectives::SentBytes before = model_.collectives().sent_bytes();
  worker_.capture(true);
  graph_ = core::capture(stream_, [&] {
    worker_.begin_step(Mode::train, gradient_scale_);
    interpret();
  });
  worker_.capture(false);
  sent_bytes_ = model_.collectives().sent_bytes();
  for (std::size_t lane = 0; lane < before.size(); ++lane) sent_bytes_[lane] -= before[lane];
}

}  // namespace lockstep::trainer
