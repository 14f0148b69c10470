// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/base/operands.h"

namespace lockstep::kernels {

// One head of one sequence: the positions of its vectors, and the keys that a query sees.
struct AttentionHead {
  AttentionShape shape;
  std::int64_t batch;
  std::int64_t head;

  std::size_t columns() const { return static_cast<std::size_t>(shape.head_columns); }
  // Returns a query's vector in q or its gradient.
  template <class S>
  std::span<S> of_query(std::span<S> all, std::int64_t query) const {
    const std::int64_t first = (batch * shape.queries + query) * shape.stride() + head * shape.head_columns;
    return all.subspan(static_cast<std::size_t>(first), columns());
  }
  // Returns a key's vector in k, v or their gradients, of the head that the queries' head reads.
  template <class S>
  std::span<S> of_key(std::span<S> all, std::int64_t key) const {
    const std::int64_t key_head = head / shape.group();
    const std::int64_t first = (batch * shape.keys + key) * shape.key_stride() + key_head * shape.head_columns;
    return all.subspan(static_cast<std::size_t>(first), columns());
  }
  // Returns a query's vector in o or d_o.
  template <class S>
  std::span<S> packed(std::span<S> all, std::int64_t query) const {
    const std::int64_t first = (batch * shape.queries + query) * shape.row() + head * shape.head_columns;
    return all.subspan(static_cast<std::size_t>(first), columns());
  }
  std::size_t lse_index(std::int64_t query) const {
    return static_cast<std::size_t>((batch * shape.heads + head) * shape.queries + query);
  }
  std::int64_t seen_keys(std::int64_t query) const {
    return shape.causal ? query + shape.keys - shape.queries + 1 : shape.keys;
  }
};

template <class Visit>
void for_each_head(const AttentionShape& shape, Visit&& visit) {
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) visit(AttentionHead{shape, b, h});
  }
}

template <class S>
S dot_reference(std::span<const S> a, std::span<const S> b) {
  S sum = S(0);
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

template <class S>
void add_scaled_reference(S factor, std::span<const S> from, std::span<S> to) {
  for (std::size_t c = 0; c < from.size(); ++c) to[c] += factor * from[c];
}

template <class S>
void forward_query_reference(const AttentionHead& head, std::int64_t query, ReferenceData<S>& data) {
  using std::exp;
  using std::log;
  const AttentionShape& shape = head.shape;
  const std::span<const S> q = head.of_query(data["q"], query);
  std::vector<S> scores;
  S max = S(-std::numeric_limits<double>::infinity());
  for (std::int64_t j = 0; j < head.seen_keys(query); ++j) {
    const std::span<const S> k = head.of_key(data["k"], j);
    scores.push_back(S(static_cast<double>(shape.factor())) * dot_reference<S>(q, k));
    if (scores.back() > max) max = scores.back();
  }
  if (max == S(-std::numeric_limits<double>::infinity())) max = S(0);
  S sum = S(0);
  std::vector<S> o(head.columns(), S(0));
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const S weight = exp(scores[j] - max);
    sum += weight;
    const std::span<const S> v = head.of_key(data["v"], static_cast<std::int64_t>(j));
    add_scaled_reference<S>(weight, v, o);
  }
  for (std::size_t c = 0; c < o.size(); ++c) head.packed(data["o"], query)[c] = o[c] / sum;
  data["lse"][head.lse_index(query)] = max + log(sum);
}

template <class S>
void reference(const AttentionForward& args, ReferenceData<S>& data) {
  for_each_head(args.shape, [&](const AttentionHead& head) {
    for (std::int64_t i = 0; i < args.shape.queries; ++i) forward_query_reference(head, i, data);
  });
}

template <class S>
void backward_query_reference(const AttentionHead& head, std::int64_t query, ReferenceData<S>& data) {
  using std::exp;
  const AttentionShape& shape = head.shape;
  const S factor(static_cast<double>(shape.factor()));
  const std::span<const S> q = head.of_query(data["q"], query);
  const std::span<const S> d_o = head.packed(data["d_o"], query);
  const S delta = dot_reference<S>(head.packed(data["o"], query), d_o);
  for (std::int64_t j = 0; j < head.seen_keys(query); ++j) {
    const std::span<const S> k = head.of_key(data["k"], j);
    const std::span<const S> v = head.of_key(data["v"], j);
    const S weight = exp(factor * dot_reference<S>(q, k) - data["lse"][head.lse_index(query)]);
    const S d_score = factor * (weight * (dot_reference<S>(v, d_o) - delta));
    add_scaled_reference<S>(weight, d_o, head.of_key(data["dv"], j));
    add_scaled_reference<S>(d_score, q, head.of_key(data["dk"], j));
    add_scaled_reference<S>(d_score, k, head.of_query(data["dq"], query));
  }
}

// The elements between the rows of a strided gradient keep the value with which tests fill outputs: NaN.
template <class S>
void fill_between_rows(const Rows& rows, std::span<S> gradient) {
  const auto stride = static_cast<std::size_t>(rows.stride);
  const auto row = static_cast<std::size_t>(rows.elems);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = S(i % stride < row ? 0.0 : std::numeric_limits<double>::quiet_NaN());
  }
}

template <class S>
void reference(const AttentionBackward& args, ReferenceData<S>& data) {
  for (const char* gradient : {"dq", "dk", "dv"}) fill_between_rows(args.shape.rows_of(gradient), data[gradient]);
  for_each_head(args.shape, [&](const AttentionHead& head) {
    for (std::int64_t i = 0; i < args.shape.queries; ++i) backward_query_reference(head, i, data);
  });
}

}  // namespace lockstep::kernels
