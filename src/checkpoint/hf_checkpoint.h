// A Hugging Face directory as a Checkpoint.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace masu {

Result<std::unique_ptr<Checkpoint>> OpenHfCheckpoint(const std::string& path);

}  // namespace masu
