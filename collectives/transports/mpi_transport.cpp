// The Transport over messages of MPI, and the thread that makes them progress.
#include "collectives/transports/mpi_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#include <sched.h>

#include "collectives/transports/mpi_calls.h"
#include "core/wait.h"

namespace lockstep::transports {

// Makes MPI progress while the thread that started messages computes. MPI moves the bytes of large messages, and
// answers their handshakes, only within calls: a thread calls it periodically as long as messages are in flight.
class MpiProgress {
 public:
  // `call` is any MPI call that does not block; it is not called again once `abort`, if any, is raised. The thread
  // begins with the first message.
  MpiProgress(std::function<void()> call, const core::AbortFlag* abort);
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  // Called by the thread that owns the message.
  void began();
  void ended() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void run();
  bool is_needed() const;

  const std::function<void()> call_;
  const core::AbortFlag* const abort_;
  std::atomic<int> in_flight_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // for sleeping until there is a message
  std::condition_variable changed_;
  std::thread thread_;
};

namespace {

// Pause between two calls. A call takes about a microsecond: a fiftieth of a core.
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

MpiProgress::MpiProgress(std::function<void()> call, const core::AbortFlag* abort)
    : call_(std::move(call)), abort_(abort) {}

MpiProgress::~MpiProgress() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_.store(true);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::began() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (in_flight_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  const std::scoped_lock lock(mutex_);  // the thread has checked before, or sleeps and is woken
  changed_.notify_one();
}

void MpiProgress::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [this] { return stopped_ || is_needed(); });
    lock.unlock();
    while (!stopped_ && is_needed()) {
      call_();
      std::this_thread::sleep_for(kNap);
    }
    lock.lock();
  }
}

bool MpiProgress::is_needed() const {
  return in_flight_.load(std::memory_order_relaxed) > 0 && (abort_ == nullptr || !abort_->raised());
}

// The Transport over messages of MPI.
namespace {

constexpr std::chrono::seconds kLongestAnswer{1};
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // bytes that one element of a large MPI count covers

std::string describe(const char* call, int rank, int peer, std::size_t bytes) {
  return std::string(call) + ": rank " + std::to_string(rank) + ", peer " + std::to_string(peer) + ", " +
         std::to_string(bytes) + " bytes";
}

// A count and a datatype that describe `bytes` bytes: MPI's counts are int, so above 2 GiB a type of many bytes is
// made.
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
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // messages in flight keep it alive (MPI 3.1, 4.1.9)
  }
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 1;
  MPI_Datatype type_ = MPI_BYTE;
};

// Sleeps of a thread that waits for a message: a quarter of the time that it has waited, so that it notices the message
// at most a quarter late, with few polls.
class Naps {
 public:
  void restart() { since_ = {}; }
  void take() {
    constexpr auto kLongest = std::chrono::microseconds(200);
    const auto now = core::Clock::now();
    if (now - last_ > 2 * kLongest) restart();  // the thread has done something else
    if (since_ == core::Clock::time_point{}) since_ = now;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>((now - since_) / 4, kLongest));
    last_ = core::Clock::now();
  }

 private:
  core::Clock::time_point since_{};
  core::Clock::time_point last_{};
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(SharedComm comm, bool oversubscribed, std::chrono::nanoseconds timeout, MpiTransportOptions options)
      : options_(std::move(options)),
        oversubscribed_(oversubscribed),
        timeout_(timeout),
        owned_(std::move(comm)),
        comm_(*owned_) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &num_ranks_);
    int* largest_tag = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found);
    if (found != 0) largest_channel_ = *largest_tag;
    if (options_.progresses) progress_.emplace([this] { look(); }, options_.abort);
  }

  ~MpiTransport() override { progress_.reset(); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  int number_of(int rank) const override {
    return options_.members.empty() ? rank : options_.members[static_cast<std::size_t>(rank)];
  }

  Request send(int peer, int channel, std::span<const std::byte> bytes) override {
    LOCKSTEP_CHECK(channel >= 0 && channel < largest_channel_, "channel is no MPI tag");
    const Extent extent(bytes.size());
    const std::int64_t id = free_request();
    check_mpi(MPI_Isend(bytes.data(), extent.count(), extent.type(), peer, channel, comm_, &at(id)),
              [&] { return describe("MPI_Isend", number_of(rank()), number_of(peer), bytes.size()); });
    return begun(id);
  }

  Request recv(int peer, int channel, std::span<std::byte> bytes) override {
    LOCKSTEP_CHECK(channel >= 0 && channel < largest_channel_, "channel is no MPI tag");
    const Extent extent(bytes.size());
    const std::int64_t id = free_request();
    check_mpi(MPI_Irecv(bytes.data(), extent.count(), extent.type(), peer, channel, comm_, &at(id)),
              [&] { return describe("MPI_Irecv", number_of(rank()), number_of(peer), bytes.size()); });
    return begun(id);
  }

  bool done(Request request) override {
    int complete = 0;
    check_mpi(MPI_Test(&at(request.id), &complete, MPI_STATUS_IGNORE),
              [&] { return "MPI_Test: rank " + std::to_string(number_of(rank())); });
    if (complete == 0) return false;
    free_.push_back(request.id);
    naps_.restart();
    if (progress_) progress_->ended();
    return true;
  }

  // A lost rank causes an error of a call, or mpirun ends us. MPI polls; with enough cores that is the fastest.
  void idle() override {
    if (options_.abort != nullptr && options_.abort->raised()) options_.abort->throw_raised();
    if (options_.naps) {
      naps_.take();
    } else if (oversubscribed_) {
      sched_yield();
    }
  }

  // Every rank that still runs has reached its deadline, too, and notifies all others: the channel after the last
  // carries nothing else.
  std::string find_silent() override {
    if (!options_.alone) return {};
    std::vector<bool> heard(static_cast<std::size_t>(num_ranks_));
    for (int peer = 0; peer < num_ranks_; ++peer) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (peer != rank_) MPI_Isend(nullptr, 0, MPI_BYTE, peer, largest_channel_, comm_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    heard[static_cast<std::size_t>(rank_)] = true;
    const core::Deadline deadline = core::Deadline::after(kLongestAnswer);
    while (!deadline.passed() && std::find(heard.begin(), heard.end(), false) != heard.end()) {
      int found = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, largest_channel_, comm_, &found, &status);
      if (found == 0) {
        idle();
        continue;
      }
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, largest_channel_, comm_, MPI_STATUS_IGNORE);
      heard[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    }
    std::string text;
    for (int peer = 0; peer < num_ranks_; ++peer) {
      if (!heard[static_cast<std::size_t>(peer)]) text += "; rank " + std::to_string(peer) + " does not answer";
    }
    return text;
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
  // Probing for a message that does not exist lets MPI make progress, and receives nothing. The thread that waits for a
  // message reports its errors.
  void look() const {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, largest_channel_, comm_, &found, MPI_STATUS_IGNORE);
  }

  Request begun(std::int64_t id) {
    naps_.restart();
    if (progress_) progress_->began();
    return {id};
  }
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
        throw core::Error(core::Failure::timeout, std::string(call) + ": rank " + std::to_string(number_of(rank())) +
                                                      ": not all ranks arrived in time" + find_silent());
      }
      if (complete == 0) idle();
    }
  }

  const MpiTransportOptions options_;
  const bool oversubscribed_;
  const std::chrono::nanoseconds timeout_;
  const SharedComm owned_;
  const MPI_Comm comm_;
  int rank_ = 0;
  int num_ranks_ = 1;
  int largest_channel_ = 32767;  // the least that MPI promises (MPI 3.1, 8.1.2)
  std::vector<MPI_Request> requests_;
  std::vector<std::int64_t> free_;  // free entries of requests_
  Naps naps_;
  std::optional<MpiProgress> progress_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(SharedComm comm, bool oversubscribed, std::chrono::nanoseconds timeout,
                                              const MpiTransportOptions& options) {
  return std::make_unique<MpiTransport>(std::move(comm), oversubscribed, timeout, options);
}

}  // namespace lockstep::transports
