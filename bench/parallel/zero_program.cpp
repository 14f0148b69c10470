#include "bench/parallel/zero_program.h"

#include <optional>
#include <vector>

#include "bench/parallel/zero_records.h"
#include "bench/parallel/zero_run.h"
#include "bench/parallel/zero_text.h"
#include "bench/serve/orders.h"
#include "core/error.h"

namespace lockstep::parallel_bench {

namespace {

int serve_row(const ZeroFlags& flags) {
  const std::vector<ZeroRow> rows = zero_rows(flags);
  serve::check_one(rows.size(), "row");
  serve_zero(flags, rows.front());
  return 0;
}

}  // namespace

int run_zero_bench(const ZeroFlags& flags, const pipeline::Print& print) {
  const std::vector<ZeroRow> rows = zero_rows(flags);
  for (const ZeroRow& row : rows) options_of(flags, row);  // refuses before anything is printed
  std::optional<core::RecordWriter> writer;
  if (!flags.step.json_file.empty()) writer.emplace(flags.step.json_file);
  const core::RunRecord run = zero_run_record(flags);
  if (writer) writer->write(run);
  print(zero_heading_text(flags));
  std::size_t wrong = 0;
  for (const ZeroRow& row : rows) {
    const ZeroResult result = run_zero(flags, row);
    print(zero_row_text(row, result));
    wrong += result.wrong().empty() ? 0 : 1;
    if (writer) writer->write(sharding_record(run, flags, row, result));
  }
  print(zero_ending_text(rows.size(), wrong));
  if (writer) writer->commit();
  return wrong > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

int zero_bench_main(int argc, char** argv) {
  return pipeline::exit_status_of("zero_bench", [&] {
    const auto parsed = parse_zero_flags(argc, argv);
    if (const auto* help = std::get_if<sweep::HelpRequested>(&parsed)) {
      pipeline::to_stdout(help->text);
      return 0;
    }
    const ZeroFlags& flags = std::get<ZeroFlags>(parsed);
    return flags.step.serve ? serve_row(flags) : run_zero_bench(flags, pipeline::to_stdout);
  });
}

}  // namespace lockstep::parallel_bench
