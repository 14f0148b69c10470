#include <mpi.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/transports/mpi_calls.h"
#include "collectives/transports/mpi_transport.h"
#include "core/ranks.h"

namespace lockstep::transports {
namespace {

// The most ranks of this host that may use one of this rank's cores; and this rank's number of cores.
struct CoreShare {
  int cores = 1;
  int ranks = 1;  // ranks that share them
};

CoreShare find_core_share(MPI_Comm host) {
  CoreShare share;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) {  // more cores than the set has room for: certainly enough
    share.cores = CPU_SETSIZE;
    return share;
  }
  std::vector<int> users(CPU_SETSIZE);  // [core]
  for (int core = 0; core < CPU_SETSIZE; ++core) users[static_cast<std::size_t>(core)] = CPU_ISSET(core, &mine) ? 1 : 0;
  std::vector<int> all(users.size());
  MPI_Allreduce(users.data(), all.data(), CPU_SETSIZE, MPI_INT, MPI_SUM, host);
  for (std::size_t core = 0; core < users.size(); ++core) share.ranks = std::max(share.ranks, users[core] * all[core]);
  share.cores = std::max(1, CPU_COUNT(&mine));
  return share;
}

// A process of this host as its operating system knows it. Process numbers mean something within their namespace only,
// which containers have one each of.
struct HostMate {
  int rank = 0;  // MPI's
  pid_t process = 0;
  ino_t process_namespace = 0;
};

std::vector<HostMate> find_mates(MPI_Comm world, MPI_Comm host) {
  HostMate mine;
  MPI_Comm_rank(world, &mine.rank);
  mine.process = getpid();
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) mine.process_namespace = status.st_ino;
  int num_ranks = 1;
  MPI_Comm_size(host, &num_ranks);
  std::vector<HostMate> all(static_cast<std::size_t>(num_ranks));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, host);
  std::erase_if(all, [&](const HostMate& mate) {
    return mate.rank == mine.rank || mate.process_namespace != mine.process_namespace;
  });
  return all;
}

// Describes the ranks of this host that cannot answer, as their processes are stopped or have ended; empty: none.
std::string find_lost(const std::vector<HostMate>& mates, int ranks_per_process) {
  std::string text;
  for (const HostMate& mate : mates) {
    const std::optional<char> state = core::process_state(mate.process);
    if (state && *state != 'T' && *state != 'Z') continue;
    const int first = mate.rank * ranks_per_process;
    const bool one_rank_each = ranks_per_process == 1;
    text += one_rank_each ? "; rank " : "; ranks ";
    text += std::to_string(first) + (one_rank_each ? "" : " to " + std::to_string(first + ranks_per_process - 1));
    text += " (process " + std::to_string(mate.process) + ")" + (one_rank_each ? " is " : " are ");
    text += state == 'T' ? "stopped" : "gone";
  }
  return text;
}

// Hosts are distinguished by which ranks can share memory, and numbered by their lowest rank.
MpiPlacement find_placement(MPI_Comm world, std::vector<HostMate>& mates) {
  MpiPlacement placement;
  MPI_Comm_rank(world, &placement.rank);
  MPI_Comm_size(world, &placement.num_ranks);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int rank_in_host = 0;
  int ranks_of_host = 1;
  MPI_Comm_rank(host, &rank_in_host);
  MPI_Comm_size(host, &ranks_of_host);
  const CoreShare share = find_core_share(host);
  mates = find_mates(world, host);
  MPI_Comm_free(&host);
  int first = rank_in_host == 0 ? 1 : 0;
  MPI_Allreduce(&first, &placement.num_hosts, 1, MPI_INT, MPI_SUM, world);
  MPI_Allreduce(&ranks_of_host, &placement.most_ranks_of_a_host, 1, MPI_INT, MPI_MAX, world);
  int crowded = share.ranks > share.cores ? 1 : 0;
  int any_crowded = 0;
  MPI_Allreduce(&crowded, &any_crowded, 1, MPI_INT, MPI_MAX, world);
  placement.oversubscribed = any_crowded != 0;
  int cores = std::max(1, share.cores / share.ranks);
  MPI_Allreduce(&cores, &placement.cores_per_rank, 1, MPI_INT, MPI_MIN, world);
  return placement;
}

// The level that holds for all: a rank without MPI_THREAD_MULTIPLE cannot serve threads of one that has it.
MpiThreads threads_of_all(MPI_Comm world, int mine) {
  int least = mine;
  MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, world);  // levels grow (MPI 3.1, 12.4.3)
  return least >= MPI_THREAD_MULTIPLE ? MpiThreads::multiple : MpiThreads::funneled;
}

// Where a rank's program comes from. Texts end in a zero and are cut if they are too long.
struct ProgramOrigin {
  std::array<char, 64> host = {};
  std::array<char, 64> revision = {};
  std::size_t arguments = 0;  // their hash
};

// Returns in what a rank's program differs from rank 0's; empty: in nothing.
std::string difference_text(const std::vector<ProgramOrigin>& all, std::size_t rank) {
  const ProgramOrigin& origin = all[rank];
  const ProgramOrigin& first = all[0];
  const std::string who = "rank " + std::to_string(rank) + " on " + origin.host.data();
  const std::string rank_0 = std::string("rank 0 on ") + first.host.data();
  if (origin.revision != first.revision) {
    return who + " runs revision " + origin.revision.data() + ", but " + rank_0 + " runs " + first.revision.data() +
           "; allowed: the same build on all hosts";
  }
  if (origin.arguments == first.arguments) return {};
  return who + " has other arguments than " + rank_0 + "; allowed: the same on all ranks";
}

// A communicator of the members only, which only they take part in creating.
MPI_Comm comm_of(MPI_Comm world, const std::vector<std::int32_t>& members) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (members.empty()) {
    check_mpi(MPI_Comm_dup(world, &comm), [] { return std::string("MPI_Comm_dup"); });
    return comm;
  }
  const std::vector<int> ranks(members.begin(), members.end());
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm_group(world, &all);
  MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some);
  const int code = MPI_Comm_create_group(world, some, 0, &comm);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  check_mpi(code, [&] { return "MPI_Comm_create_group of " + std::to_string(ranks.size()) + " ranks"; });
  LOCKSTEP_CHECK(comm != MPI_COMM_NULL, "the rank is no member of its transport");
  return comm;
}

}  // namespace

SharedComm shared_comm(MPI_Comm comm) {
  return {new MPI_Comm(comm), [](MPI_Comm* owned) {
            if (std::uncaught_exceptions() == 0) MPI_Comm_free(owned);
            delete owned;
          }};
}

struct MpiWorld::State {
  MPI_Comm comm = MPI_COMM_NULL;
  MpiPlacement placement;
  std::vector<HostMate> mates = {};
  int ranks_per_process = 1;
  std::chrono::nanoseconds timeout{};
  MpiThreads threads = MpiThreads::funneled;
  std::unique_ptr<Watchdog> watchdog;  // its thread begins at first use
};

bool mpi_is_built() {
  return true;
}
std::string mpi_absence() {
  return "";
}

MpiWorld::MpiWorld(int* argc, char*** argv, std::chrono::nanoseconds timeout, MpiThreads threads)
    : state_(std::make_unique<State>()) {
  // A message over TCP to a rank that was killed: it fails with an error, in place of a signal that ends this rank,
  // too, before anyone has reported which one was lost.
  std::signal(SIGPIPE, SIG_IGN);
  const int wanted = threads == MpiThreads::multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, wanted, &level), [] { return std::string("MPI_Init_thread"); });
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->comm);
  MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN);
  state_->threads = threads_of_all(state_->comm, std::min(level, wanted));
  state_->placement = find_placement(state_->comm, state_->mates);
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
MpiThreads MpiWorld::threads() const {
  return state_->threads;
}
void* MpiWorld::native_communicator() const {
  return &state_->comm;
}

std::unique_ptr<Transport> MpiWorld::make_transport(const MpiTransportOptions& options) {
  return std::move(make_transports(1, options).front());
}

std::vector<std::unique_ptr<Transport>> MpiWorld::make_transports(int threads, const MpiTransportOptions& options) {
  LOCKSTEP_CHECK(!options.progresses || state_->threads == MpiThreads::multiple, "a thread that may not call MPI");
  watchdog().enter();  // members meet here
  const SharedComm comm = shared_comm(comm_of(state_->comm, options.members));
  watchdog().leave();
  const bool crowded = state_->placement.oversubscribed || state_->placement.cores_per_rank < threads;
  std::vector<std::unique_ptr<Transport>> ends;
  for (int t = 0; t < threads; ++t) ends.push_back(make_mpi_transport(comm, crowded, state_->timeout, options));
  return ends;
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

void MpiWorld::set_ranks_per_process(int ranks) {
  state_->ranks_per_process = ranks;
}

void MpiWorld::abort(const core::Error& error) const {
  constexpr auto kPause = std::chrono::milliseconds(500);     // for ranks of other hosts, which may know the lost one
  constexpr auto kPauseOfRefusals = std::chrono::seconds(5);  // all ranks refuse alike: rank 0 reports it and ends them
  const bool for_all = error.failure() == core::Failure::usage && state_->placement.rank == 0;
  const std::string who = for_all ? "" : "rank " + std::to_string(state_->placement.rank) + ": ";
  std::string text = error.what();
  if (error.failure() == core::Failure::usage && !for_all) std::this_thread::sleep_for(kPauseOfRefusals);
  if (error.failure() == core::Failure::timeout || error.failure() == core::Failure::rank_lost) {
    const std::string lost = find_lost(state_->mates, state_->ranks_per_process);
    if (lost.empty() && state_->placement.num_hosts > 1) std::this_thread::sleep_for(kPause);
    text += lost;
  }
  std::fprintf(stderr, "error: %s%s\n", text.starts_with(who) ? "" : who.c_str(), text.c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, error.exit_status());
  std::_Exit(error.exit_status());
}

void MpiWorld::check_alike(const std::string& revision, std::span<char* const> arguments) const {
  std::string words;
  for (const char* word : arguments) words.append(word).append("\n");
  ProgramOrigin mine;
  mine.arguments = std::hash<std::string>()(words);
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::copy_n(revision.begin(), std::min(revision.size(), mine.revision.size() - 1), mine.revision.begin());
  std::vector<ProgramOrigin> all(static_cast<std::size_t>(state_->placement.num_ranks));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, state_->comm);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (const std::string text = difference_text(all, rank); !text.empty()) throw core::usage_error(text);
  }
}

int run_mpi_program(int argc, char** argv, const std::string& revision, std::chrono::nanoseconds timeout,
                    const std::function<int(MpiWorld&)>& body, MpiThreads threads) {
  MpiWorld world(&argc, &argv, timeout, threads);
  try {
    world.check_alike(revision, std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    return body(world);
  } catch (const core::Error& error) {
    world.abort(error);
  } catch (const std::exception& error) {
    world.abort(core::Error(core::Failure::internal, error.what()));
  }
}

}  // namespace lockstep::transports
