// Reference: plain loops, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/attention/attention_reference.h"
#include "kernels/attention_decode/attention_decode.h"
#include "kernels/base/operands.h"

namespace lockstep::kernels {

// Returns the position of a sequence's t-th token in the cache.
template <class S>
std::int64_t place_reference(const DecodeShape& shape, ReferenceData<S>& data, std::int64_t sequence, std::int64_t t) {
  if (!shape.paged()) return sequence * shape.most_keys + t;
  const std::int64_t entry = sequence * shape.table_row() + t / shape.block;
  return integer_of(data["table"][static_cast<std::size_t>(entry)]) * shape.block + t % shape.block;
}

// Returns a sequence's keys or values in attention's layout: [length, kv_heads, head_columns].
template <class S>
std::vector<S> gathered_reference(const DecodeShape& shape, ReferenceData<S>& data, const char* name,
                                  std::int64_t sequence, std::int64_t length) {
  std::vector<S> rows;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      const auto row = data[name].begin() + shape.cache().offset(place_reference(shape, data, sequence, t), head);
      rows.insert(rows.end(), row, row + shape.head_columns);
    }
  }
  return rows;
}

// Computes attention of each sequence by itself; its last query sees all keys.
template <class S>
void reference(const AttentionDecode& args, ReferenceData<S>& data) {
  const DecodeShape& s = args.shape;
  const std::int64_t row = s.queries * s.heads * s.head_columns;
  for (std::int64_t n = 0; n < s.sequences; ++n) {
    const std::int64_t length = integer_of(data["lengths"][static_cast<std::size_t>(n)]);
    const auto of_sequence = [&](const char* name) { return data[name].begin() + n * row; };
    ReferenceData<S> sequence;
    sequence.add("q", std::vector<S>(of_sequence("q"), of_sequence("q") + row));
    for (const char* name : {"k", "v"}) sequence.add(name, gathered_reference(s, data, name, n, length));
    sequence.add("o", std::vector<S>(static_cast<std::size_t>(row)));
    sequence.add("lse", std::vector<S>(static_cast<std::size_t>(s.queries * s.heads)));
    reference(AttentionForward{.shape = {.batch = 1,
                                         .heads = s.heads,
                                         .queries = s.queries,
                                         .keys = length,
                                         .head_columns = s.head_columns,
                                         .scale = s.scale,
                                         .kv_heads = s.kv_heads}},
              sequence);
    std::copy(sequence["o"].begin(), sequence["o"].end(), of_sequence("o"));
    std::copy(sequence["lse"].begin(), sequence["lse"].end(), data["lse"].begin() + n * s.queries * s.heads);
  }
}

template <class S>
void reference(const CacheAppend& args, ReferenceData<S>& data) {
  const std::int64_t columns = args.cache.head_columns;
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    const std::int64_t place = integer_of(data["places"][static_cast<std::size_t>(t)]);
    if (place < 0) continue;
    for (std::int64_t head = 0; head < args.cache.kv_heads; ++head) {
      const std::int64_t from = (t * args.cache.kv_heads + head) * columns;
      const std::int64_t to = args.cache.offset(place, head);
      std::copy_n(data["k"].begin() + from, columns, data["k_cache"].begin() + to);
      std::copy_n(data["v"].begin() + from, columns, data["v_cache"].begin() + to);
    }
  }
}

}  // namespace lockstep::kernels
