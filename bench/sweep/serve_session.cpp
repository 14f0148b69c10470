#include "bench/sweep/serve_session.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "bench/serve/serve_ranks.h"
#include "core/error.h"

namespace lockstep::sweep {
namespace {

struct ServedRow {
  collectives::Operation operation;
  Contender contender;
  std::string name;
};

std::string name_of_row(const collectives::Operation& operation, const Contender& contender, int num_ranks) {
  const std::string op = has_op(operation.kind) ? std::string(core::name_of(operation.op)) + "/" : "";
  return std::string(collectives::name_of(operation.kind)) + "/" + contender.algorithm + "/" +
         std::string(core::name_of(operation.dtype)) + "/" + op +
         std::to_string(collectives::message_bytes(operation.kind, num_ranks, operation.count, operation.dtype)) +
         "B/ranks:" + std::to_string(num_ranks) + "/" + std::string(contender.backend->name);
}

std::vector<ServedRow> rows_of(const SessionPlan& session) {
  std::vector<ServedRow> rows;
  for (std::size_t i = 0; i < session.operations.size(); ++i) {
    for (const Contender& contender : session.contenders[i]) {
      const collectives::Operation& operation = session.operations[i];
      rows.push_back({operation, contender, name_of_row(operation, contender, session.num_ranks)});
    }
  }
  return rows;
}

// Only one row is prepared at a time, as all rows share the session's memory.
class Server {
 public:
  Server(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints)
      : session_(session),
        endpoints_(endpoints),
        rows_(rows_of(session)),
        device_(endpoints.front()->device),
        pool_(static_cast<std::byte*>(device_.allocate(session_bytes(session)))) {}
  ~Server() {
    ready_.reset();
    device_.release(pool_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::vector<ServedRow>& rows() const { return rows_; }

  double us_of_call(std::size_t index, std::int64_t calls) {
    if (!ready_ || ready_index_ != index) make_ready(index);
    return ready_->us_of_call(calls);
  }

 private:
  void make_ready(std::size_t index) {
    const ServedRow& row = rows_[index];
    ready_.reset();
    const auto at = std::find(session_.backends.begin(), session_.backends.end(), row.contender.backend);
    backends::Endpoint& endpoint = *endpoints_[static_cast<std::size_t>(at - session_.backends.begin())];
    ready_ = std::make_unique<Trial>(endpoint, row.operation, prepare(endpoint, row.operation, row.contender), pool_,
                                     rounds_, trial_options(session_));
    ready_->run_batch(kMostCallsOfABatch);
    if (session_.flags.check && ready_->measured().wrong > 0) {
      throw core::Error(core::Failure::wrong_data,
                        row.name + ": " + std::to_string(ready_->measured().wrong) + " elements are wrong");
    }
    ready_index_ = index;
  }

  const SessionPlan& session_;
  const std::span<backends::Endpoint* const> endpoints_;
  const std::vector<ServedRow> rows_;
  core::Device& device_;
  std::byte* const pool_;
  std::uint64_t rounds_ = 0;
  std::unique_ptr<Trial> ready_;
  std::size_t ready_index_ = 0;
};

}  // namespace

void serve_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints) {
  Server server(session, endpoints);
  transports::World& world = endpoints.front()->world;
  std::vector<std::string> names;
  for (const ServedRow& row : server.rows()) names.push_back(row.name);
  std::optional<serve::Orders> orders;
  if (world.rank() == 0) orders.emplace(session.flags.program, names);
  serve::serve_ranks(orders ? &*orders : nullptr, world,
                     [&](std::size_t index, std::int64_t calls) { return server.us_of_call(index, calls); });
}

}  // namespace lockstep::sweep
