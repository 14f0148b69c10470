#include "bench/context/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/provenance.h"

namespace lockstep::context_bench {
namespace {

constexpr const char* kColumns =
    "#{:>9} {:>3} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>5} {:>8} {:>8} {:>8} {:>9}\n";
constexpr const char* kRow =
    " {:>9} {:>3} {:>7} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>6.1f} {:>6} "
    "{:>5.2f} "
    "{:>8.3f} {:>8.3f} {:>8.2f} {:>9.1e}{}\n";

std::string place_text(const ContextFlags& flags) {
  const backends::DeviceChoice& device = flags.place.device;
  const int most = *std::max_element(flags.ranks.begin(), flags.ranks.end());
  if (flags.link) {
    return fmt::format("links of {:g} us and {:g} GB/s are EMULATED in wall-clock time; kernels run on this machine",
                       flags.link->latency_us, flags.link->gbps);
  }
  if (device.cuda) return program::gpus_text(device, most, flags.mpi) + (device.nccl ? "; NCCL's" : "");
  return flags.mpi == nullptr ? "through this machine's memory" : "MPI messages of " + flags.mpi->library_version();
}

}  // namespace

std::string heading_text(const ContextFlags& flags) {
  const std::string columns =
      fmt::format(fmt::runtime(kColumns), "", "", "", "forward", "", "", "", "backward", "", "", "", "", "", "", "", "",
                  "", "") +
      fmt::format(fmt::runtime(kColumns), "way", "cp", "length", "kernels", "comm", "serial", "async", "kernels",
                  "comm", "serial", "async", "hidden", "simul.", "load", "sent f", "sent b", "peak", "differs") +
      fmt::format(fmt::runtime(kColumns), "", "", "(tokens)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)",
                  "(ms)", "(%)", "(%)", "", "(MB)", "(MB)", "(MB)", "");
  return fmt::format(
             "# lockstep version {}, {}: attention of one layer, whose sequence ranks share; forward and backward\n"
             "# {} sequence{}, {} heads of {} columns, {}, {}; {} thread{} per rank\n"
             "# {}\n"
             "# kernels: all kernels alone; comm: communication alone; serial: one after the other; async: "
             "communication "
             "runs\n"
             "#   concurrently with blocks that do not need it; hidden: 1 - (async - kernels) / comm; simul.: hidden "
             "as "
             "the\n"
             "#   simulator has it, of these kernels on the emulated link; load: kernels of the slowest rank over the "
             "mean,\n"
             "#   measured alone on as many cores as there are\n"
             "# sent: by the rank that sends most, counted in the plans that ran and equal to the list's; peak: of "
             "tensors\n"
             "#   beside the input and the output's gradient, of the rank that holds most; differs: from one rank's "
             "result, of\n"
             "#   the largest element. Times are medians of the slowest rank's, in turn; MB = 1e6 bytes\n",
             core::build().version, flags.program, flags.batch, flags.batch == 1 ? "" : "s", flags.heads,
             flags.head_columns, core::short_name_of(flags.dtype), flags.causal ? "causal" : "no mask", flags.threads,
             flags.threads == 1 ? "" : "s", place_text(flags)) +
         columns;
}

std::string row_text(const ContextFlags& flags, const parallel::ContextLayer& layer, const Result& result) {
  const auto ms = [&](Form form, Direction direction) { return result.median_us(form, direction) / 1e3; };
  const std::string wrong = result.wrong();
  const std::string simulated = flags.link ? fmt::format("{:.1f}", 100 * result.simulated_hidden()) : "-";
  std::string text = fmt::format(kRow, name_of(layer.shape.way), layer.shape.ranks, layer.length,
                                 ms(Form::kernels, Direction::forward), ms(Form::exchanges, Direction::forward),
                                 ms(Form::one_by_one, Direction::forward), ms(Form::beside, Direction::forward),
                                 ms(Form::kernels, Direction::backward), ms(Form::exchanges, Direction::backward),
                                 ms(Form::one_by_one, Direction::backward), ms(Form::beside, Direction::backward),
                                 100 * result.hidden(), simulated, result.load(), result.sent_bytes[0] / 1e6,
                                 result.sent_bytes[1] / 1e6, static_cast<double>(result.peak_bytes) / 1e6,
                                 result.worst_difference, wrong.empty() ? "" : "  WRONG");
  if (!wrong.empty()) text += "#   " + wrong + "\n";
  return text;
}

std::string ending_text(std::size_t rows, std::size_t wrong) {
  if (wrong == 0) {
    return fmt::format("# {} row{} give{} one rank's results and send{} exactly the bytes of the lists\n", rows,
                       rows == 1 ? "" : "s", rows == 1 ? "s" : "", rows == 1 ? "s" : "");
  }
  return fmt::format("# {} of {} rows are WRONG\n", wrong, rows);
}

}  // namespace lockstep::context_bench
