#include "bench/step/sent_counter.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "collectives/backends/backend.h"
#include "core/error.h"
#include "schedules/step/breakdown.h"

namespace lockstep::step_bench {

using collectives::Kind;
using collectives::Operation;

namespace {

// A collective that reports each of its runs.
class Counted final : public collectives::Collective {
 public:
  Counted(std::unique_ptr<Collective> inner, SentCounter::Bytes bytes, std::atomic<std::int64_t>& sent,
          std::atomic<double>& least)
      : inner_(std::move(inner)), bytes_(bytes), sent_(sent), least_(least) {}

  void run(const void* input, void* output) override {
    inner_->run(input, output);
    sent_ += bytes_.sent;
    least_ += bytes_.least;
  }

 private:
  const std::unique_ptr<Collective> inner_;
  const SentCounter::Bytes bytes_;
  std::atomic<std::int64_t>& sent_;
  std::atomic<double>& least_;
};

schedules::Comm comm_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return schedules::Comm::all_reduce;
    case Kind::all_gather:
    case Kind::broadcast:  // crosses each of n - 1 links once: mean over the n members as for an all-gather
    case Kind::reduce:     // likewise
      return schedules::Comm::all_gather;
    case Kind::reduce_scatter:
      return schedules::Comm::reduce_scatter;
    default:
      LOCKSTEP_CHECK(kind == Kind::all_to_all, "a collective of a training step");
      return schedules::Comm::all_to_all;
  }
}

// Mean over members of the bytes that each has for others.
double least_bytes_of(const Operation& operation, int members) {
  if (operation.matrix == nullptr) {
    const std::int64_t payload = collectives::message_bytes(operation.kind, members, operation.count, operation.dtype);
    return schedules::wire_bytes(comm_of(operation.kind), payload, members);
  }
  std::int64_t elems = 0;
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) elems += from == to ? 0 : operation.matrix->at(from, to);
  }
  return static_cast<double>(elems) * static_cast<double>(core::size_of(operation.dtype)) / members;
}

SentCounter::Bytes bytes_of(const backends::Prepared& prepared, const Operation& operation, int members, int member) {
  const double least = least_bytes_of(operation, members);
  const std::int64_t counted = backends::sent_bytes(prepared, operation, member);
  return {counted < 0 ? std::llround(least) : counted, least};
}

}  // namespace

backends::MeshRank SentCounter::counting(backends::MeshRank& rank) {
  return {rank.messages,
          rank.device,
          rank.abort,
          rank.threaded,
          [this, &rank](std::size_t channel, const Operation& operation, std::string_view algorithm) {
            return prepare(rank, channel, operation, algorithm);
          },
          rank.queues,
          rank.settle};
}

backends::Prepared SentCounter::prepare(const backends::MeshRank& rank, std::size_t channel, const Operation& operation,
                                        std::string_view algorithm) {
  backends::Prepared prepared = rank.prepare(channel, operation, algorithm);
  const backends::Channel& members = channels_[channel];
  const auto member = std::lower_bound(members.begin(), members.end(), rank.messages.rank()) - members.begin();
  const Bytes bytes = bytes_of(prepared, operation, static_cast<int>(members.size()), static_cast<int>(member));
  prepared.collective = std::make_unique<Counted>(std::move(prepared.collective), bytes, sent_, least_);
  return prepared;
}

bool sent_as_formula(double sent, double least, double formula) {
  constexpr double kRoundings = 1e-9;  // tolerance for whole bytes times (n - 1) / n in double
  return std::fabs(least - formula) <= kRoundings * formula && sent >= (1 - kRoundings) * formula;
}

}  // namespace lockstep::step_bench
