// Models split over several GGUF files, NAME-00001-of-00003.gguf and so on: the first part has the
// metadata, every part a share of the tensors.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace masu {

using GgufOpener = std::function<Result<std::unique_ptr<GgufFile>>(const std::string& path)>;

// `first` itself if it is a whole model. Else a view of all parts as one file; parts are opened
// with `open`. Errors name a part that is missing, belongs to another model or repeats a tensor.
Result<std::unique_ptr<GgufFile>> OpenOtherParts(std::unique_ptr<GgufFile> first,
                                                 const GgufOpener& open);

}  // namespace masu
