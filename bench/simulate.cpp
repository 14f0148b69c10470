#include <algorithm>
#include <string_view>

#include "bench/simulate/simulate.h"

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("simulate", [&] {
    const auto commands = lockstep::simulate::commands();
    const std::string_view word = argc > 1 ? argv[1] : "";
    const auto command =
        std::find_if(commands.begin(), commands.end(), [&](const auto& one) { return one.name == word; });
    if (command != commands.end()) return command->run(argc, argv, lockstep::program::to_stdout);
    if (!word.empty() && word.front() != '-') throw lockstep::simulate::no_such_command(word);
    return lockstep::simulate::run_simulate(lockstep::simulate::parse_simulate_flags(argc, argv),
                                            lockstep::program::to_stdout);
  });
}
