#include "bench/tp_linear/program.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bench/serve/orders.h"
#include "bench/tp_linear/records.h"
#include "bench/tp_linear/run.h"
#include "bench/tp_linear/text.h"
#include "core/error.h"

namespace lockstep::tp_linear {

namespace {

int serve_layer(const TpLinearFlags& flags) {
  const std::vector<Case> cases = cases_of(flags);
  serve::check_one(cases.size(), "layer");
  serve_case(flags, cases.front());
  return 0;
}

}  // namespace

int run_tp_linear(const TpLinearFlags& flags, const program::Print& print) {
  check_cases(flags);
  if (flags.serve) return serve_layer(flags);
  const bool tells = program::tells(flags.mpi);
  core::RecordWriter writer(tells ? flags.json_file : "");
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  print(heading_text(flags));
  Totals totals;
  std::map<std::pair<BlockKind, bool>, Reference> references;  // those of a grid's layers separately
  const std::vector<Case> cases = cases_of(flags);
  for (const Case& one : cases) {
    const std::pair key(one.block, one.grid.has_value());
    if (references.count(key) == 0) {
      references[key] = one.grid ? grid_reference_of(one.block, flags.shape, flags.threads)
                                 : reference_of(one.block, flags.shape, flags.threads);
    }
    const std::vector<Form> forms = run_case(flags, one, references[key]);
    for (const Form& form : forms) {
      print(row_text(flags, one, form));
      const bool is_last = &one == &cases.back() && &form == &forms.back();
      if (form.energy || is_last) print(form.energy_text);
      if (writer.is_open()) writer.write(layer_record(run, flags, one, form));
    }
    add_to(totals, forms);
  }
  print(ending_text(totals));
  writer.commit();
  return totals.wrong_rows > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::tp_linear
