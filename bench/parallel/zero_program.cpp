#include "bench/parallel/zero_program.h"

#include <optional>
#include <vector>

#include "bench/parallel/zero_records.h"
#include "bench/parallel/zero_run.h"
#include "bench/parallel/zero_text.h"
#include "bench/serve/orders.h"
#include "bench/trainer/text.h"
#include "core/error.h"
#include "trainer/step/train_step.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {

namespace {

int serve_row(const ZeroFlags& flags) {
  const std::vector<ZeroRow> rows = zero_rows(flags);
  serve::check_one(rows.size(), "row");
  serve_zero(flags, rows.front());
  return 0;
}

}  // namespace

int run_zero_bench(const ZeroFlags& flags, const program::Print& print) {
  if (flags.step.serve) return serve_row(flags);
  const std::vector<ZeroRow> rows = zero_rows(flags);
  for (const ZeroRow& row : rows) {  // refuse rows that cannot run before anything is printed
    const trainer::TrainOptions options = options_of(flags, row);
    trainer::check_room(options, trainer::make_train_step(options.model, options.layout));
  }
  const bool tells = program::tells(flags.step.options.mpi);
  core::RecordWriter writer(tells ? flags.step.json_file : "");
  const core::RunRecord run = zero_run_record(flags);
  writer.write(run);
  print(mini_train::place_text(options_of(flags, rows.front())));
  print(zero_heading_text(flags));
  std::size_t wrong = 0;
  for (const ZeroRow& row : rows) {
    const ZeroResult result = run_zero(flags, row);
    if (!tells) continue;
    print(zero_row_text(row, result));
    if (result.energy || &row == &rows.back()) print(result.energy_text);
    wrong += result.wrong().empty() ? 0 : 1;
    if (writer.is_open()) writer.write(sharding_record(run, flags, row, result));
  }
  if (!tells) return 0;
  print(zero_ending_text(rows.size(), wrong));
  writer.commit();
  return wrong > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::parallel_bench
