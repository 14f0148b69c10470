// One rank's part of one row: buffers, timed calls, and the check of every call.
//
// Calls are timed in batches. Each call of a batch has buffers of its own, so that the batch runs without a pause, as
// in nccl-tests, and every output is still there to be checked afterwards. A batch is as long as fits into
// batch_bytes; large messages are timed individually, each after a barrier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/collective_perf/flags.h"
#include "collectives/backends/backend.h"
#include "collectives/verify.h"
#include "core/record.h"

namespace lockstep::sweep {

inline constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
// GPU work is launched and waited for once per batch, which costs as much as several small calls.
inline constexpr std::size_t kGpuBatchBytes = std::size_t{64} << 20;
inline constexpr int kMostCallsOfABatch = 32;

struct TrialOptions {
  std::uint64_t seed = 1;
  bool check = true;
  int unalign_elems = 0;
  int iterations_per_sample = 1;  // if above 1, the iterations of a graph: as many as a batch has room for
  int calls_per_iteration = 1;    // nccl-tests' agg_iters
  std::size_t batch_bytes = kBatchBytes;
  bool graph = false;  // a sample is one replay of a graph
  Blocking blocking = Blocking::none;
};

// Bytes of memory per rank for the rows of an operation: a batch of calls, each with buffers of its own.
std::size_t pool_bytes(const collectives::Operation& operation, int num_ranks, const TrialOptions& options);

// Bytes of one call's buffers.
std::size_t call_bytes(const collectives::Operation& operation, int num_ranks, const TrialOptions& options);

struct TrialData {
  std::vector<double> samples_us;  // this rank's time per call: the mean over the calls of a sample
  double total_us = 0;             // sum over samples of the time per call, with batches timed as a whole
  double queued_us = 0;            // the same for the host's time until all was enqueued; on the CPU equal to total_us
  std::int64_t timed_calls = 0;
  std::int64_t wrong = 0;  // wrong elements on this rank, over all timed calls
};

class Trial {
 public:
  // Rounds number the calls of all trials that share a pool: no two have the same inputs, so that results of an earlier
  // call are never mistaken for new ones. `pool` is memory of endpoint.device of at least pool_bytes(); the rows of a
  // sweep share it.
  Trial(backends::Endpoint& endpoint, const collectives::Operation& operation, backends::Prepared prepared,
        std::byte* pool, std::uint64_t& rounds, const TrialOptions& options);

  void warm_up(int iterations);
  // Runs one batch of at most `most_samples`, checks each of its calls, and adds to measured().
  void run_batch(int most_samples);
  // Restarts sampling; elements that were wrong before still count.
  void drop_samples();

  // Mean time (us) of this many calls in a row, on buffers that a batch has filled; results are not checked.
  double us_of_call(std::int64_t calls);

  const backends::Prepared& prepared() const { return prepared_; }
  const TrialData& measured() const { return measured_; }
  bool is_graph() const { return options_.graph; }
  int iterations_per_sample() const { return iterations_per_sample_; }
  int calls_of_a_batch() const { return static_cast<int>(slots_.size()); }  // at most
  bool checks() const { return options_.check && computes_; }

 private:
  struct Slot {
    std::byte* input;
    std::byte* output;
  };
  void lay_out_slots(std::byte* pool);
  void fill(int calls);
  int calls_per_sample() const { return iterations_per_sample_ * options_.calls_per_iteration; }
  int samples_of_a_batch(int most_samples) const;
  void time_batch(int samples);
  void time_host(int samples);
  void time_device(int samples);
  void time_blocking(int samples);
  void run_call(int index);
  void run_sample(int sample);
  void capture();
  void check(int calls);

  backends::Endpoint& endpoint_;
  const collectives::Operation operation_;
  const TrialOptions options_;
  backends::Prepared prepared_;
  const collectives::Verifier verifier_;
  const bool computes_;  // core::Device::computes()
  int iterations_per_sample_ = 1;
  std::vector<Slot> slots_;
  std::unique_ptr<core::Graph> graph_;  // graph of one sample, once it is captured
  std::vector<std::byte> mirror_;       // host copy of a slot, where the device's memory is not the host's
  std::uint64_t& rounds_;
  std::uint64_t round_ = 0;  // round of the batch's first call
  int poisoned_slots_ = 0;
  std::vector<std::unique_ptr<core::Event>> events_;  // around the samples of a batch
  TrialData measured_;
};

// Results of a row after it has been measured, the same on every rank.

// Properties of a plan that are known before anything runs. It has predicted_us if alpha and beta were measured, or the
// links are specified.
struct PlanFacts : core::PlanRecord {
  // Emulated links only: the part of the prediction that the links cause, and the least time in which this machine's
  // memory moves the bytes that all ranks read and write. If memory_us exceeds the prediction, the row measures the
  // memory, not the links.
  std::optional<double> links_us = {};
  std::optional<double> memory_us = {};
};

// The row's record, still without the fields from its run: number, transport and basis. time_us, algbw_gbps and
// busbw_gbps are known, and queued_us unless it is simulated; `facts` take the place of `plan`.
struct RowResult : core::RowRecord {
  collectives::Operation operation = {};
  std::optional<PlanFacts> facts = {};
};

// The fields of a row's record that follow from its operation.
core::RowRecord record_of(const collectives::Operation& operation, int num_ranks);

// Bytes that algbw is computed from: the busiest rank's in all_to_all_v, else collectives::message_bytes.
std::int64_t row_bytes(const collectives::Operation& operation, int num_ranks);

// Sets algbw and busbw from the row's bytes and time.
void set_bandwidths(RowResult& result, int num_ranks);

// How rank times are combined into the time of a call. A thread with several GPUs, each of which is a rank, takes as
// long as its slowest GPU, and -a combines the times of threads. This is nccl-tests' rule: its thread measures one time
// for all of its GPUs.
struct TimeRule {
  TimeOf time_of = TimeOf::mean;
  int gpus_per_thread = 1;
};
double time_by(const TimeRule& rule, const std::vector<double>& time_of_rank);

// Collective: all ranks call it together.
RowResult combine(transports::World& world, const collectives::Operation& operation, const Trial& trial,
                  const TimeRule& rule, bool checked);

}  // namespace lockstep::sweep
