#include "bench/context/program.h"

#include <vector>

#include "bench/context/longest.h"
#include "bench/context/records.h"
#include "bench/context/run.h"
#include "bench/context/text.h"
#include "core/error.h"

namespace lockstep::context_bench {

int run_context(const ContextFlags& flags, const program::Print& print) {
  check_layers(flags);
  const std::vector<Longest> longest = longest_sequences(flags);  // refuses wrong flags before anything is printed
  const bool tells = program::tells(flags.mpi);
  core::RecordWriter writer(tells ? flags.json_file : "");
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  print(heading_text(flags));
  std::size_t rows = 0;
  std::size_t wrong = 0;
  Whole whole;
  std::int64_t length_of_whole = 0;
  const std::vector<parallel::ContextLayer> layers = layers_of(flags);
  for (const parallel::ContextLayer& layer : layers) {
    if (layer.length != length_of_whole) whole = reference_of(layer, flags.threads);
    length_of_whole = layer.length;
    const Result result = run_layer(flags, layer, whole);
    print(row_text(flags, layer, result));
    if (result.energy || &layer == &layers.back()) print(result.energy_text);
    if (writer.is_open()) writer.write(context_record(run, flags, layer, result));
    ++rows;
    wrong += result.wrong().empty() ? 0 : 1;
  }
  print(ending_text(rows, wrong));
  print(longest_text(flags, longest));
  writer.commit();
  return wrong > 0 ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::context_bench
