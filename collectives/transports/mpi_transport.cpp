#include "collectives/transports/mpi_transport.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "collectives/transports/mpi_calls.h"
#include "collectives/transports/watchdog.h"
#include "core/wait.h"

namespace lockstep::transports {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // what an MPI count of larger units stands for

std::string describe(const char* call, int rank, int peer, std::size_t bytes) {
  return std::string(call) + ": rank " + std::to_string(rank) + ", peer " + std::to_string(peer) + ", " +
         std::to_string(bytes) + " bytes";
}

// A count and a type that name `bytes` bytes: MPI's counts are int, so that above 2 GiB a type of many bytes is made.
class Extent {
 public:
  explicit Extent(std::size_t bytes) {
    if (bytes <= INT_MAX) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(kPieceBytes), MPI_BYTE, &piece);
    const std::size_t pieces = bytes / kPieceBytes;
    int lengths[2] = {static_cast<int>(pieces), static_cast<int>(bytes % kPieceBytes)};
    MPI_Aint places[2] = {0, static_cast<MPI_Aint>(pieces * kPieceBytes)};
    MPI_Datatype types[2] = {piece, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&piece);
    count_ = 1;
  }
  ~Extent() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // messages under way keep it alive (MPI 3.1, 4.1.9)
  }
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 1;
  MPI_Datatype type_ = MPI_BYTE;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm world, const MpiPlacement& placement, std::chrono::nanoseconds timeout)
      : placement_(placement), timeout_(timeout) {
    check_mpi(MPI_Comm_dup(world, &comm_), [] { return std::string("MPI_Comm_dup"); });
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    int* largest_tag = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found);
    if (found != 0) largest_channel_ = *largest_tag;
  }

  ~MpiTransport() override {
    // With an exception on its way other ranks may never come here, and freeing waits for them.
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return placement_.rank; }
  int num_ranks() const override { return placement_.num_ranks; }

  Request send(int peer, int channel, std::span<const std::byte> bytes) override {
    LOCKSTEP_CHECK(channel >= 0 && channel <= largest_channel_, "channel is no MPI tag");
    const Extent extent(bytes.size());
    const std::int64_t id = free_request();
    check_mpi(MPI_Isend(bytes.data(), extent.count(), extent.type(), peer, channel, comm_, &at(id)),
              [&] { return describe("MPI_Isend", rank(), peer, bytes.size()); });
    return {id};
  }

  Request recv(int peer, int channel, std::span<std::byte> bytes) override {
    LOCKSTEP_CHECK(channel >= 0 && channel <= largest_channel_, "channel is no MPI tag");
    const Extent extent(bytes.size());
    const std::int64_t id = free_request();
    check_mpi(MPI_Irecv(bytes.data(), extent.count(), extent.type(), peer, channel, comm_, &at(id)),
              [&] { return describe("MPI_Irecv", rank(), peer, bytes.size()); });
    return {id};
  }

  bool done(Request request) override {
    int complete = 0;
    check_mpi(MPI_Test(&at(request.id), &complete, MPI_STATUS_IGNORE),
              [&] { return "MPI_Test: rank " + std::to_string(rank()); });
    if (complete != 0) free_.push_back(request.id);
    return complete != 0;
  }

  // A lost rank shows as an error of a call, or mpirun ends us. MPI polls; with enough cores that is the fastest.
  void idle() override {
    if (placement_.oversubscribed) sched_yield();
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_, &request), [] { return std::string("MPI_Ibarrier"); });
    wait(request, "MPI_Ibarrier");  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): it tests until the request is done
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    LOCKSTEP_CHECK(all.size() == mine.size() * static_cast<std::size_t>(num_ranks()) && mine.size() <= INT_MAX,
                   "all_gather: sizes do not fit");
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(mine.size());
    check_mpi(MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_, &request),
              [] { return std::string("MPI_Iallgather"); });
    wait(request, "MPI_Iallgather");  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): as above
  }

 private:
  MPI_Request& at(std::int64_t id) { return requests_[static_cast<std::size_t>(id)]; }

  std::int64_t free_request() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::int64_t>(requests_.size()));
      requests_.push_back(MPI_REQUEST_NULL);
    }
    const std::int64_t id = free_.back();
    free_.pop_back();
    return id;
  }

  void wait(MPI_Request request, const char* call) {
    const core::Deadline deadline = core::Deadline::after(timeout_);
    int complete = 0;
    while (complete == 0) {
      check_mpi(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), [&] { return std::string(call); });
      if (complete == 0 && deadline.passed()) {
        throw core::Error(core::Failure::timeout,
                          std::string(call) + ": rank " + std::to_string(rank()) + ": not all ranks came in time");
      }
      if (complete == 0) idle();
    }
  }

  MpiPlacement placement_;
  std::chrono::nanoseconds timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int largest_channel_ = 32767;  // the least that MPI promises (MPI 3.1, 8.1.2)
  std::vector<MPI_Request> requests_;
  std::vector<std::int64_t> free_;  // of requests_
};

// Hosts are told apart by who can share memory, and numbered by their lowest rank.
MpiPlacement find_placement(MPI_Comm world) {
  MpiPlacement placement;
  MPI_Comm_rank(world, &placement.rank);
  MPI_Comm_size(world, &placement.num_ranks);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int rank_in_host = 0;
  int ranks_of_host = 1;
  MPI_Comm_rank(host, &rank_in_host);
  MPI_Comm_size(host, &ranks_of_host);
  MPI_Comm_free(&host);
  int first = rank_in_host == 0 ? 1 : 0;
  MPI_Allreduce(&first, &placement.num_hosts, 1, MPI_INT, MPI_SUM, world);
  MPI_Allreduce(&ranks_of_host, &placement.most_ranks_of_a_host, 1, MPI_INT, MPI_MAX, world);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int crowded = ranks_of_host > cores ? 1 : 0;
  int any_crowded = 0;
  MPI_Allreduce(&crowded, &any_crowded, 1, MPI_INT, MPI_MAX, world);
  placement.oversubscribed = any_crowded != 0;
  return placement;
}

}  // namespace

struct MpiWorld::State {
  MPI_Comm comm = MPI_COMM_NULL;
  MpiPlacement placement;
  std::chrono::nanoseconds timeout{};
  std::unique_ptr<Watchdog> watchdog;  // its thread begins with the first use
};

bool mpi_is_built() {
  return true;
}
std::string mpi_absence() {
  return "";
}

MpiWorld::MpiWorld(int* argc, char*** argv, std::chrono::nanoseconds timeout) : state_(std::make_unique<State>()) {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), [] { return std::string("MPI_Init_thread"); });
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->comm);
  MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN);
  state_->placement = find_placement(state_->comm);
  state_->timeout = timeout;
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0) {
    abort(core::Error(core::Failure::internal, "an exception ended this rank"));
  }
  state_->watchdog.reset();
  MPI_Comm_free(&state_->comm);
  MPI_Finalize();
}

const MpiPlacement& MpiWorld::placement() const {
  return state_->placement;
}
void* MpiWorld::native_communicator() const {
  return &state_->comm;
}

std::unique_ptr<Transport> MpiWorld::make_transport() {
  return std::make_unique<MpiTransport>(state_->comm, state_->placement, state_->timeout);
}

Watchdog& MpiWorld::watchdog() {
  if (!state_->watchdog) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(state_->timeout).count();
    const core::Error error(core::Failure::timeout,
                            "a collective of MPI is not done after " + std::to_string(ms) + " ms");
    state_->watchdog = std::make_unique<Watchdog>(state_->timeout, [this, error] { abort(error); });
  }
  return *state_->watchdog;
}

std::string MpiWorld::library_version() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string full(text);
  const std::string line = full.substr(0, std::min(full.find('\n'), full.find(',')));
  return line.rfind("Open MPI v", 0) == 0 ? "Open MPI " + line.substr(10) : line;
}

void MpiWorld::abort(const core::Error& error) const {
  std::fprintf(stderr, "error: rank %d: %s\n", state_->placement.rank, error.what());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, error.exit_status());
  std::_Exit(error.exit_status());
}

int run_mpi_program(int argc, char** argv, std::chrono::nanoseconds timeout,
                    const std::function<int(MpiWorld&)>& body) {
  MpiWorld world(&argc, &argv, timeout);
  try {
    return body(world);
  } catch (const core::Error& error) {
    world.abort(error);
  } catch (const std::exception& error) {
    world.abort(core::Error(core::Failure::internal, error.what()));
  }
}

}  // namespace lockstep::transports
