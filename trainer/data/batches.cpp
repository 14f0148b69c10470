#include "trainer/data/batches.h"

#include <cstddef>
#include <functional>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::trainer {
namespace {

// Number of positions at which a sequence and its last target fit.
std::int64_t num_places(std::int64_t text_tokens, std::int64_t length) {
  LOCKSTEP_CHECK(length > 0 && text_tokens > length, "the text is shorter than a sequence and its last target");
  return text_tokens - length;
}

void fill(const TokenText& text, std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
          const std::function<std::int64_t(std::int64_t row)>& begin_of) {
  const auto columns = static_cast<std::size_t>(length);
  LOCKSTEP_CHECK(tokens.size() == targets.size() && tokens.size() % columns == 0, "rows are whole sequences");
  for (std::size_t row = 0; row * columns < tokens.size(); ++row) {
    const auto begin = static_cast<std::size_t>(begin_of(static_cast<std::int64_t>(row)));
    text.copy(begin, tokens.subspan(row * columns, columns));
    text.copy(begin + 1, targets.subspan(row * columns, columns));
  }
}

}  // namespace

std::int64_t sample_begin(std::uint64_t seed, std::int64_t step, std::int64_t sample, std::int64_t text_tokens,
                          std::int64_t length) {
  const auto places = static_cast<std::uint64_t>(num_places(text_tokens, length));
  const std::uint64_t drawn = core::hash64(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(sample));
  return static_cast<std::int64_t>(drawn % places);  // the bias is below places / 2^64
}

std::int64_t max_windows(std::int64_t text_tokens, std::int64_t length) {
  num_places(text_tokens, length);
  return (text_tokens - 1) / length;
}

std::int64_t window_begin(std::int64_t window, std::int64_t windows, std::int64_t text_tokens, std::int64_t length) {
  LOCKSTEP_CHECK(0 <= window && window < windows, "no such window");
  const std::int64_t last_place = num_places(text_tokens, length) - 1;
  return windows == 1 ? 0 : last_place / (windows - 1) * window + last_place % (windows - 1) * window / (windows - 1);
}

void draw_samples(const TokenText& text, std::uint64_t seed, std::int64_t step, std::int64_t first_sample,
                  std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto text_tokens = static_cast<std::int64_t>(text.size());
  fill(text, length, tokens, targets,
       [&](std::int64_t row) { return sample_begin(seed, step, first_sample + row, text_tokens, length); });
}

void take_windows(const TokenText& text, std::int64_t first_window, std::int64_t windows, std::int64_t length,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto text_tokens = static_cast<std::int64_t>(text.size());
  fill(text, length, tokens, targets,
       [&](std::int64_t row) { return window_begin(first_window + row, windows, text_tokens, length); });
}

}  // namespace lockstep::trainer
