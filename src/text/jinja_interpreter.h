// Runs a syntax tree. One object per render; not thread-safe.
#pragma once

#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_limits.h"

namespace masu::jinja {

// Variables of one block. Lookup goes to the parent where a name is not set, which is how jinja2's
// compiled code behaves for names that are read before they are set.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro refers to it: it must live until the end of the render
  std::vector<std::pair<std::string, Value>> variables;
  void Set(std::string_view name, Value value);
};

class Interpreter {
 public:
  explicit Interpreter(std::time_t now) : now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws TemplateError with the line.
  Text Render(const Block& block, std::vector<std::pair<std::string, Value>> variables);

  // For functions, filters and methods.
  std::time_t now() const { return now_; }
  Value NewNamespace();
  // Counts `bytes` of new text against the limits.
  void ChargeText(size_t bytes);
  void ChargeStep();

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class ScopeGuard;
  class OutputGuard;
  class DepthGuard;
  friend class ScopeGuard;

  // Statements (jinja_interpreter.cc).
  Flow Execute(const Block& block);
  Flow ExecuteOne(const Stmt& statement);
  Flow ExecuteIf(const Stmt& statement);
  Flow ExecuteFor(const Stmt& statement);
  void ExecuteSet(const Stmt& statement);
  void ExecuteWith(const Stmt& statement);
  void ExecuteCallBlock(const Stmt& statement);
  Text Capture(const Block& block);
  void Emit(const Text& text);
  void Assign(const Expr& target, const Value& value);
  std::shared_ptr<LoopState> MakeLoop(const Stmt& statement);

  // Macros (jinja_macro.cc).
  Value MakeMacro(const Stmt& statement);
  Value CallMacro(const Signature& signature, const Block& body, Scope* scope,
                  const Arguments& arguments);
  void BindArguments(const Signature& signature, const Arguments& arguments);
  void CaptureScopes();

  // Expressions (jinja_evaluate.cc).
  Value Evaluate(const Expr& expr);
  Value EvaluateOne(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateCall(const Expr& expr, const std::vector<std::pair<std::string, Value>>& extra);
  Value EvaluateFilter(const Expr& expr, const Value* input);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateConcat(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& exprs);
  Arguments EvaluateArguments(const CallArguments& arguments);
  Value Lookup(std::string_view name) const;

  std::time_t now_;
  std::deque<Scope> scopes_;
  Scope* scope_ = nullptr;
  Text* output_ = nullptr;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  uint64_t steps_ = 0;
  size_t built_bytes_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
};

// Global functions (jinja_globals.cc); nullptr if there is none of this name.
const Value* FindGlobal(std::string_view name);

}  // namespace masu::jinja
