// A benchmark as a worker that stays: it makes its cases ready, says their names, and runs what it is told over its
// standard input until that ends. A driver (ci/gate.py) has workers of two builds run in turn, a few milliseconds each;
// the one that waits sleeps in a read.
//
// Lines out, JSON each, first {"serve": 1, "program": "kernels_bench", "cases": ["gelu_fwd/f32/...", ...]}; then for
// each order {"us": [4.1, 4.0]}, the mean time of a call in each run, or {"error": "why"}.
// Lines in: {"case": 0, "runs": 2, "calls": 1000}.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::serve {

// So many runs of a case, one after the other, each of so many calls and timed as a whole.
struct Order {
  std::int64_t case_index;
  std::int64_t runs;
  std::int64_t calls;
};

struct Silence {};  // nothing was said in time
struct End {};      // nothing more will be said

// The worker's side of its input and output. Other output of the program must go to stderr.
class Orders {
 public:
  // Says the cases. Descriptors are borrowed.
  Orders(const std::string& program, const std::vector<std::string>& cases, int in = 0, int out = 1);
  // An order that makes no sense is answered with an error, and the next one is waited for.
  std::variant<Order, Silence, End> next(std::chrono::milliseconds patience);
  void answer(std::span<const double> us_of_call);
  void answer_error(const std::string& why);

 private:
  void say(const std::string& line);
  bool read_more(std::chrono::milliseconds patience);

  std::size_t num_cases_;
  int in_;
  int out_;
  bool ended_ = false;
  std::string unread_;
};

// Obeys until the orders end. us_of_call(case, calls) makes that many calls and returns the mean time of one, in
// microseconds. An Error of it is the answer.
void serve(Orders& orders, const std::function<double(std::size_t case_index, std::int64_t calls)>& us_of_call);

// For a program whose worker serves one `what` at a time: throws a usage Error where `count` is not one.
void check_one(std::size_t count, const std::string& what);

}  // namespace lockstep::serve
