// Facts that the weights of Hugging Face's transformers do not have, and config.json beside them does: heads, rotary
// positions, the norms' epsilon.
#pragma once

#include <string>

#include "workload/model.h"

namespace lockstep::trainer {

// Throws a usage Error of one line if there is a config.json in the folder of `weights_file`, and it is of another
// model: it names the first field that differs, and what the model has. Without one, nobody knows.
void check_config_beside(const std::string& weights_file, const workload::Model& model);

}  // namespace lockstep::trainer
