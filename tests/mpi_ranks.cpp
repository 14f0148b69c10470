// One rank of a test under mpirun: mpi_ranks MODE
//   exact     every catalogue algorithm by the message executor, and MPI's own collectives, are exact
//   big       a message above 2 GiB arrives
//   throw     rank 1 throws an Error while the others run collectives
//   silent    rank 1 does not enter a plan's collective: the others end it at their deadline
//   silent_library  the same for a collective of MPI's
// Exits with 0 if all is right.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectives/libraries/mpi_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"
#include "testing/collectives/executor_cases.h"

namespace lockstep {
namespace {

using collectives::Kind;
using collectives::Operation;
using transports::MpiWorld;
using transports::Transport;

constexpr std::chrono::seconds kDeadline{3};

// Ends the run with the first wrong result.
void expect_exact(collectives::Collective& collective, const Operation& operation, const Transport& transport,
                  const std::string& what) {
  const std::int64_t wrong =
      executors::count_wrong_results(collective, operation, transport.num_ranks(), transport.rank(), 2);
  if (wrong != 0) throw core::Error(core::Failure::wrong_data, what + ": " + std::to_string(wrong) + " wrong");
}

int run_plans(Transport& transport) {
  int cases = 0;
  const auto use = [&](const plan::Plan& plan, const Operation& operation, const executors::MessageOptions& options) {
    const auto collective = executors::make_message_collective(plan, operation, transport, options);
    expect_exact(*collective, operation, transport, executors::describe(plan, operation));
    ++cases;
  };
  executors::for_each_message_case(transport.num_ranks(), use);
  executors::for_each_message_type(transport.num_ranks(), use);
  return cases;
}

int run_library(MpiWorld& mpi, const Transport& transport) {
  int cases = 0;
  const int ranks = transport.num_ranks();
  for (Kind kind : collectives::all_kinds()) {
    for (core::DType dtype : core::all_dtypes()) {
      for (core::ReduceOp op : core::all_reduce_ops()) {
        if (op != core::ReduceOp::sum && !has_op(kind)) continue;
        for (bool in_place : {false, true}) {
          Operation operation = executors::make_operation(kind, ranks, 301, dtype, op);
          operation.in_place = in_place;
          operation.root = has_root(kind) ? ranks - 1 : 0;
          if (libraries::mpi_refusal(operation, ranks)) continue;
          const auto collective = libraries::make_mpi_collective(operation, mpi);
          expect_exact(*collective, operation, transport, "library " + executors::describe(operation, ranks));
          ++cases;
        }
      }
    }
  }
  return cases;
}

int exact(MpiWorld& mpi) {
  const auto transport = mpi.make_transport();
  const std::vector<int> all = all_gather_value(*transport, transport->rank() * 3);
  for (int rank = 0; rank < transport->num_ranks(); ++rank) {
    LOCKSTEP_CHECK(all[static_cast<std::size_t>(rank)] == rank * 3, "all_gather is wrong");
  }
  const int plans = run_plans(*transport);
  const int library = run_library(mpi, *transport);
  transport->barrier();
  if (transport->rank() == 0) {
    std::printf("exact: %d cases of plans, %d of %s\n", plans, library, mpi.library_version().c_str());
  }
  return plans > 0 && library > 0 ? 0 : 1;
}

int big(MpiWorld& mpi) {
  const auto transport = mpi.make_transport();
  const std::size_t size = (std::size_t{1} << 31) + 4097;
  const auto at = [](std::size_t i) { return static_cast<std::byte>(i * 2654435761u >> 11); };
  std::vector<std::byte> bytes(size);
  const bool sends = transport->rank() == 0;
  for (std::size_t i = 0; sends && i < size; ++i) bytes[i] = at(i);
  const auto request = sends ? transport->send(1, 0, bytes) : transport->recv(0, 0, bytes);
  while (!transport->done(request)) transport->idle();
  for (std::size_t i = 0; i < size; ++i) {
    if (bytes[i] != at(i)) throw core::Error(core::Failure::wrong_data, "byte " + std::to_string(i) + " is wrong");
  }
  return 0;
}

[[noreturn]] void run_for_ever(Transport& transport) {
  const Operation operation = executors::make_operation(Kind::all_reduce, transport.num_ranks(), 10000);
  const plan::Plan plan = make_plan(algorithms::parse_choice(Kind::all_reduce, "ring"), transport.num_ranks(), 0);
  const auto collective = executors::make_message_collective(plan, operation, transport, {.timeout = kDeadline});
  executors::RankBuffers buffers(operation, transport.num_ranks(), transport.rank());
  for (;;) collective->run(buffers.input(), buffers.output());
}

int throws(MpiWorld& mpi) {
  const auto transport = mpi.make_transport();
  if (transport->rank() == 1) throw core::Error(core::Failure::wrong_data, "rank 1 has seen enough");
  run_for_ever(*transport);
}

int silent(MpiWorld& mpi) {
  const auto transport = mpi.make_transport({.alone = true});
  if (transport->rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  run_for_ever(*transport);
}

int silent_library(MpiWorld& mpi) {
  if (mpi.placement().rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  const Operation operation = executors::make_operation(Kind::all_reduce, mpi.placement().num_ranks, 10000);
  const auto collective = libraries::make_mpi_collective(operation, mpi);
  executors::RankBuffers buffers(operation, mpi.placement().num_ranks, mpi.placement().rank);
  collective->run(buffers.input(), buffers.output());
  return 0;
}

int run_mode(const std::string& mode, MpiWorld& mpi) {
  if (mode == "exact") return exact(mpi);
  if (mode == "big") return big(mpi);
  if (mode == "throw") return throws(mpi);
  if (mode == "silent") return silent(mpi);
  if (mode == "silent_library") return silent_library(mpi);
  throw core::usage_error("mpi_ranks: unknown mode '" + mode + "'");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  const std::chrono::seconds deadline =
      mode == "exact" || mode == "big" ? std::chrono::seconds(60) : lockstep::kDeadline;
  return lockstep::transports::run_mpi_program(
      argc, argv, "", deadline, [&](lockstep::transports::MpiWorld& mpi) { return lockstep::run_mode(mode, mpi); });
}
