#include "bench/parallel_layers/program.h"

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "bench/parallel_layers/records.h"
#include "bench/parallel_layers/run.h"
#include "bench/parallel_layers/text.h"
#include "bench/serve/orders.h"
#include "core/error.h"

namespace lockstep::layer_bench {

namespace {

int serve_layer(const LayerFlags& flags) {
  const std::vector<Case> cases = cases_of(flags);
  serve::check_one(cases.size(), "layer");
  serve_case(flags, cases.front());
  return 0;
}

}  // namespace

int run_layers(const LayerFlags& flags, const pipeline::Print& print) {
  std::optional<core::RecordWriter> writer;
  if (!flags.json_file.empty()) writer.emplace(flags.json_file);
  const core::RunRecord run = run_record(flags);
  if (writer) writer->write(run);
  print(heading_text(flags));
  Totals totals;
  std::map<BlockKind, Reference> references;
  for (const Case& one : cases_of(flags)) {
    if (references.count(one.block) == 0) {
      references[one.block] = reference_of(one.block, flags.shape, flags.threads);
    }
    const std::vector<Form> forms = run_case(flags, one, references[one.block]);
    for (const Form& form : forms) {
      print(row_text(one, form));
      if (writer) writer->write(layer_record(run, flags, one, form));
    }
    add_to(totals, forms);
  }
  print(ending_text(totals));
  if (writer) writer->commit();
  return totals.wrong_rows > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

int tp_linear_main(int argc, char** argv) {
  return pipeline::exit_status_of("tp_linear_bench", [&] {
    const auto parsed = parse_layer_flags(argc, argv);
    if (const auto* help = std::get_if<sweep::HelpRequested>(&parsed)) {
      pipeline::to_stdout(help->text);
      return 0;
    }
    const LayerFlags& flags = std::get<LayerFlags>(parsed);
    return flags.serve ? serve_layer(flags) : run_layers(flags, pipeline::to_stdout);
  });
}

}  // namespace lockstep::layer_bench
