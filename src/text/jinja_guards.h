// Scoped changes of an Interpreter's state, undone also when an error passes through.
#pragma once

#include "text/jinja_interpreter.h"

namespace masu::jinja {

// New variables, on top of the current ones or of `parent`.
class Interpreter::ScopeGuard {
 public:
  explicit ScopeGuard(Interpreter* interpreter) : ScopeGuard(interpreter, interpreter->scope_) {}
  ScopeGuard(Interpreter* interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter->scope_) {
    interpreter->scopes_.push_back({parent, false, {}});
    interpreter->scope_ = &interpreter->scopes_.back();
  }
  ~ScopeGuard() {
    auto& scopes = interpreter_->scopes_;
    if (&scopes.back() == interpreter_->scope_ && !scopes.back().captured) scopes.pop_back();
    interpreter_->scope_ = outer_;
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter* interpreter_;
  Scope* outer_;
};

// Output goes to `text`.
class Interpreter::OutputGuard {
 public:
  OutputGuard(Interpreter* interpreter, Text* text)
      : interpreter_(interpreter), outer_(std::exchange(interpreter->output_, text)) {}
  ~OutputGuard() { interpreter_->output_ = outer_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  Interpreter* interpreter_;
  Text* outer_;
};

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter* interpreter) : interpreter_(interpreter) {
    if (++interpreter->depth_ > kMaxCallDepth) {
      --interpreter->depth_;
      Fail("calls are nested deeper than {} levels", kMaxCallDepth);
    }
  }
  ~DepthGuard() { --interpreter_->depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter* interpreter_;
};

}  // namespace masu::jinja
