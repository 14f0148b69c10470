#include "bench/trainer/serve_steps.h"

#include <optional>
#include <string>

#include "bench/serve/calls.h"
#include "bench/serve/serve_ranks.h"
#include "bench/trainer/text.h"
#include "trainer/train/rank_trainer.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {

std::string step_name(const trainer::TrainOptions& options) {
  return "step/" + options.model.name + "/" + std::string(core::short_name_of(options.layout.compute)) + "/" +
         layout_text(options.layout) + "/threads:" + std::to_string(options.threads);
}

void serve_steps(const TrainFlags& flags, const trainer::Corpus& corpus) {
  const trainer::TrainOptions& options = flags.options;
  const std::string name = step_name(options);
  trainer::run_trainers(options, corpus, [&](const trainer::TrainStep& /*made*/, trainer::RankTrainer& rank) {
    std::optional<serve::Orders> orders;
    if (rank.model().rank() == 0) orders.emplace(flags.program, std::vector<std::string>{name});
    std::int64_t step = 0;
    serve::serve_ranks(orders ? &*orders : nullptr, rank.model().mesh().messages, [&](std::size_t, std::int64_t calls) {
      return serve::us_of_calls(calls, [&] { rank.train_step(++step); });
    });
  });
}

}  // namespace lockstep::mini_train
