// Runs closures on the I/O thread, one after the other. Outlives the server that made it: after
// that, Post drops what it gets, so late news from the engine is harmless.
#pragma once

#include <functional>

namespace masu {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(std::function<void()> work) = 0;  // any thread
};

}  // namespace masu
