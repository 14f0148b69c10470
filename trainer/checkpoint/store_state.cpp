#include "trainer/checkpoint/store_state.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::trainer {
namespace {

using parallel::ParameterStore;
using State = ParameterStore::State;

struct NamedState {
  State state;
  std::string_view prefix;
};
constexpr std::array<NamedState, 3> kStates = {{
    {State::master, "master."},
    {State::first_moment, "first_moment."},
    {State::second_moment, "second_moment."},
}};

void add(ParameterStore& store, State state, std::string_view prefix, Held& to) {
  const std::size_t first = to.tensors.size();
  for (const workload::Parameter& parameter : store.parameters()) {
    to.tensors.push_back({std::string(prefix) + parameter.name, parameter.shape});
  }
  for (const ParameterStore::Run& run : store.runs(state)) {
    to.pieces.push_back({first + run.parameter, run.whole_begin, run.count, run.data});
  }
}

}  // namespace

void add_state(ParameterStore& store, Held& to) {
  for (const NamedState& named : kStates) add(store, named.state, named.prefix, to);
}

void add_masters(ParameterStore& store, Held& to) {
  add(store, State::master, "", to);
}

void state_was_read(ParameterStore& store) {
  for (const NamedState& named : kStates) store.store_back(named.state);
  store.masters_changed();
}

void masters_were_read(ParameterStore& store) {
  store.store_back(State::master);
  store.masters_changed();
}

}  // namespace lockstep::trainer
