#include "core/async_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libaio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::core {
namespace {

// Opens a file without a name in the folder; returns -1 and sets errno on failure.
int open_nameless(const std::string& folder, int flags) {
  std::string path = folder + "/lockstep-offload-XXXXXX";
  const int file = mkostemp(path.data(), flags | O_CLOEXEC);
  if (file >= 0) unlink(path.c_str());
  return file;
}

Error refused(const std::string& folder, const std::string& what, int error) {
  return usage_error(fmt::format("offload folder '{}': {}: {}; allowed: a writable folder with enough space", folder,
                                 what, std::strerror(error)));
}

}  // namespace

struct AsyncFile::State {
  struct Request {
    bool writes = false;
    Ticket ticket = 0;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    void* memory = nullptr;
  };
  struct Slot {
    iocb control = {};
    Request request = {};
  };
  struct Pending {
    std::int64_t requests = 0;  // requests that have not completed
    std::string failure = {};   // message of the first request that failed
  };

  explicit State(const Options& given) : options(given), slots(static_cast<std::size_t>(given.depth)) {
    for (Slot& slot : slots) idle.push_back(&slot);
    open();
    if (const int result = io_setup(options.depth, &context); result < 0) {
      close(file);
      throw refused(options.folder, fmt::format("cannot create a queue of {} requests", options.depth), -result);
    }
  }
  ~State() {
    while (!waiting.empty() || idle.size() < slots.size()) {
      submit();
      if (!reap()) break;
    }
    io_destroy(context);
    close(file);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void open() {
    file = open_nameless(options.folder, O_DIRECT);
    if (file < 0 && errno == EINVAL) file = open_nameless(options.folder, 0);
    if (file < 0) throw refused(options.folder, "cannot create a file", errno);
    if (const int error = posix_fallocate(file, 0, std::max<off_t>(options.bytes, 1)); error != 0) {
      close(file);
      throw refused(options.folder, fmt::format("not enough space for {} bytes", options.bytes), error);
    }
  }

  Ticket begin(bool writes, std::int64_t offset, void* memory, std::int64_t bytes) {
    LOCKSTEP_CHECK(offset % kAlign == 0 && bytes % kAlign == 0 && offset + bytes <= options.bytes,
                   "offset and size must be whole blocks inside of the file");
    const Ticket ticket = ++last_ticket;
    for (std::int64_t at = 0; at < bytes; at += options.request_bytes) {
      waiting.push_back({.writes = writes,
                         .ticket = ticket,
                         .offset = offset + at,
                         .bytes = std::min(options.request_bytes, bytes - at),
                         .memory = static_cast<std::byte*>(memory) + at});
      ++pending[ticket].requests;
    }
    submit();
    return ticket;
  }

  // Submits as many requests as the queue takes.
  void submit() {
    while (!waiting.empty() && !idle.empty()) {
      Slot& slot = *idle.back();
      slot.request = waiting.front();
      const Request& request = slot.request;
      const auto bytes = static_cast<std::size_t>(request.bytes);
      if (request.writes) {
        io_prep_pwrite(&slot.control, file, request.memory, bytes, request.offset);
      } else {
        io_prep_pread(&slot.control, file, request.memory, bytes, request.offset);
      }
      slot.control.data = &slot;
      iocb* controls[] = {&slot.control};
      const int result = io_submit(context, 1, controls);
      if (result == -EAGAIN) return;
      if (result != 1) {
        fail(request, std::strerror(-result));
        end(request);
        waiting.pop_front();
        continue;
      }
      idle.pop_back();
      waiting.pop_front();
    }
  }

  // Waits for at least one request. Returns false if none completed before the deadline.
  bool reap() {
    if (idle.size() == slots.size()) return true;
    std::vector<io_event> events(slots.size());
    const auto ms = options.timeout.count();
    timespec left{ms / 1000, static_cast<long>(ms % 1000) * 1'000'000};
    int count = 0;
    do {
      count = io_getevents(context, 1, static_cast<long>(events.size()), events.data(), &left);
    } while (count == -EINTR);
    if (count <= 0) return false;
    for (int i = 0; i < count; ++i) {
      const io_event& event = events[static_cast<std::size_t>(i)];
      Slot& slot = *static_cast<Slot*>(event.data);
      const auto moved = static_cast<std::int64_t>(static_cast<long>(event.res));
      if (moved < 0) fail(slot.request, std::strerror(static_cast<int>(-moved)));
      if (moved >= 0 && moved != slot.request.bytes) fail(slot.request, fmt::format("only {} bytes", moved));
      end(slot.request);
      idle.push_back(&slot);
    }
    return true;
  }

  void fail(const Request& request, const std::string& why) {
    std::string& failure = pending[request.ticket].failure;
    if (failure.empty()) {
      failure = fmt::format("offload folder '{}': {} of {} bytes at offset {} failed: {}", options.folder,
                            request.writes ? "a write" : "a read", request.bytes, request.offset, why);
    }
  }
  void end(const Request& request) { --pending[request.ticket].requests; }

  void wait(Ticket ticket) {
    const auto found = pending.find(ticket);
    if (found == pending.end()) return;  // a request of no bytes
    while (found->second.requests > 0) {
      submit();
      if (found->second.requests == 0) break;
      if (!reap()) {
        throw Error(Failure::timeout, fmt::format("offload folder '{}': nothing was read or written for {} ms",
                                                  options.folder, options.timeout.count()));
      }
    }
    const std::string failure = std::move(found->second.failure);
    pending.erase(found);
    submit();
    if (!failure.empty()) throw Error(Failure::internal, failure);
  }

  const Options options;
  int file = -1;
  io_context_t context = nullptr;
  std::vector<Slot> slots;
  std::vector<Slot*> idle = {};
  std::deque<Request> waiting = {};
  std::map<Ticket, Pending> pending = {};
  Ticket last_ticket = 0;
};

AsyncFile::AsyncFile(const Options& options) : state_(std::make_unique<State>(options)) {}
AsyncFile::~AsyncFile() = default;

AsyncFile::Ticket AsyncFile::read(std::int64_t offset, void* to, std::int64_t bytes) {
  return state_->begin(false, offset, to, bytes);
}
AsyncFile::Ticket AsyncFile::write(std::int64_t offset, const void* from, std::int64_t bytes) {
  return state_->begin(true, offset, const_cast<void*>(from), bytes);
}
void AsyncFile::wait(Ticket ticket) {
  state_->wait(ticket);
}

}  // namespace lockstep::core
