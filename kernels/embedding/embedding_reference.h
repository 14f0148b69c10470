// Reference: plain loops, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/counted.h"
#include "kernels/base/reference_data.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {

inline std::int64_t embedding_id(double value) {
  return static_cast<std::int64_t>(value);
}
inline std::int64_t embedding_id(const Counted& value) {
  return static_cast<std::int64_t>(value.value());
}

// Returns the table row of an id, or `elsewhere` if the id is not in this shard, so that the FLOPs do not depend on the
// ids.
template <class Args, class S>
std::span<S> embedding_row(const Args& args, std::span<S> table, const S& id, std::vector<S>& elsewhere) {
  const std::int64_t row = embedding_id(id) - args.first_id;
  if (row < 0 || row >= args.rows) return elsewhere;
  return table.subspan(static_cast<std::size_t>(row * args.columns), static_cast<std::size_t>(args.columns));
}

template <class S>
void reference(const EmbeddingForward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  std::vector<S> zeros(columns, S(0));
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.tokens); ++n) {
    const auto row = embedding_row<EmbeddingForward, S>(args, data["table"], data["ids"][n], zeros);
    for (std::size_t c = 0; c < columns; ++c) {
      S& y = data["y"][n * columns + c];
      y = row[c];
      if (args.length > 0) y += data["positions"][n % static_cast<std::size_t>(args.length) * columns + c];
    }
  }
}

template <class S>
void reference(const EmbeddingBackward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  std::vector<S> thrown_away(columns, S(0));
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.tokens); ++n) {
    const auto row = embedding_row<EmbeddingBackward, S>(args, data["dtable"], data["ids"][n], thrown_away);
    for (std::size_t c = 0; c < columns; ++c) {
      const S dy = data["dy"][n * columns + c];
      row[c] += dy;
      if (args.length > 0) data["dpositions"][n % static_cast<std::size_t>(args.length) * columns + c] += dy;
    }
  }
}

}  // namespace lockstep::kernels
