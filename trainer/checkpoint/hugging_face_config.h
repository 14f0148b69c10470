// Checks config.json for facts that weight files of Hugging Face's transformers do not contain: heads, rotary
// positions, the epsilon of norms.
#pragma once

#include <string>

#include "workload/model.h"

namespace lockstep::trainer {

// Throws a usage Error of one line if the folder of `weights_file` has a config.json of another model; it names the
// first field that differs and the model's value. Without a config.json nothing is checked.
void check_config_beside(const std::string& weights_file, const workload::Model& model);

}  // namespace lockstep::trainer
