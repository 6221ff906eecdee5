// Carries "the client has gone" from the I/O thread to whatever stage its request is in.
// Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

namespace masu {

class Cancellation {
 public:
  void Cancel() {
    std::function<void()> handler;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      handler = std::move(handler_);
      handler_ = nullptr;
    }
    if (handler) handler();
  }

  // Runs `handler` at Cancel, or now if that has been.
  void SetHandler(std::function<void()> handler) {
    {
      std::lock_guard lock(mutex_);
      if (!cancelled_) {
        handler_ = std::move(handler);
        return;
      }
    }
    handler();
  }

  bool cancelled() const {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  std::function<void()> handler_;
};

}  // namespace masu
