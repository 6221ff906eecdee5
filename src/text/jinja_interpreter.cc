#include "text/jinja_interpreter.h"

#include <memory>

#include "text/jinja_filters.h"
#include "text/jinja_guards.h"

namespace masu::jinja {

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, current] : variables) {
    if (known == name) {
      current = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  // Namespaces are the only values that can refer to themselves, and long chains of them would
  // otherwise be destroyed by recursion.
  for (const auto& names : namespaces_) names->attributes.clear();
}

Text Interpreter::Render(const Block& block, std::vector<std::pair<std::string, Value>> variables) {
  Text out;
  const OutputGuard output(this, &out);
  const ScopeGuard scope(this);
  scope_->variables = std::move(variables);
  // What the template sets at its top level must not change the variables that it was given, and
  // reads of names fall through to those.
  const ScopeGuard top(this);
  Execute(block);
  return out;
}

Value Interpreter::NewNamespace() {
  namespaces_.push_back(std::make_shared<Namespace>());
  return Value(Value::State(namespaces_.back()));
}

void Interpreter::ChargeStep() {
  if (++steps_ > kMaxSteps) Fail("the template takes more than {} steps", kMaxSteps);
}

void Interpreter::ChargeText(size_t bytes) {
  built_bytes_ += bytes;
  if (bytes > kMaxTextBytes) Fail("a string exceeds {} bytes", kMaxTextBytes);
  if (built_bytes_ > kMaxBuiltBytes) {
    Fail("the template builds more than {} bytes of text", kMaxBuiltBytes);
  }
}

void Interpreter::Emit(const Text& text) {
  output_->Append(text);
  if (output_->size() > kMaxTextBytes) Fail("the output exceeds {} bytes", kMaxTextBytes);
}

Interpreter::Flow Interpreter::Execute(const Block& block) {
  const DepthGuard depth(this);
  for (const StmtPtr& statement : block) {
    ChargeStep();
    try {
      const Flow flow = ExecuteOne(*statement);
      if (flow != Flow::kNormal) return flow;
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = statement->line;
      throw;
    }
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteOne(const Stmt& statement) {
  switch (statement.kind) {
    case StmtKind::kData:
      Emit(statement.text);
      break;
    case StmtKind::kOutput:
      Emit(ToText(Evaluate(*statement.value)));
      break;
    case StmtKind::kIf:
      return ExecuteIf(statement);
    case StmtKind::kFor:
      return ExecuteFor(statement);
    case StmtKind::kSet:
    case StmtKind::kSetBlock:
      ExecuteSet(statement);
      break;
    case StmtKind::kMacro:
      scope_->Set(statement.signature.name, MakeMacro(statement));
      break;
    case StmtKind::kCall:
      ExecuteCallBlock(statement);
      break;
    case StmtKind::kFilterBlock: {
      const Value body = Value::Of(Capture(statement.body));
      Emit(ToText(EvaluateFilter(*statement.value, &body)));
      break;
    }
    case StmtKind::kWith:
      ExecuteWith(statement);
      break;
    case StmtKind::kScope: {
      const ScopeGuard scope(this);
      return Execute(statement.body);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& statement) {
  for (const Branch& branch : statement.branches) {
    if (Evaluate(*branch.condition).Truthy()) return Execute(branch.body);
  }
  return Execute(statement.otherwise);
}

std::shared_ptr<LoopState> Interpreter::MakeLoop(const Stmt& statement) {
  auto loop = std::make_shared<LoopState>();
  auto items = std::make_shared<std::vector<Value>>(Iterate(Evaluate(*statement.value)));
  loop->depth = loop_depth_;
  // The loop variable can outlive the loop in a namespace, and then still ask for items.
  if (statement.condition != nullptr) CaptureScopes();
  loop->source = [this, &statement, items, next = size_t{0},
                  outer = scope_]() mutable -> std::optional<Value> {
    while (next < items->size()) {
      Value item = (*items)[next++];
      if (statement.condition == nullptr) return item;
      const ScopeGuard scope(this, outer);
      Assign(*statement.target, item);
      if (Evaluate(*statement.condition).Truthy()) return item;
    }
    return std::nullopt;
  };
  return loop;
}

Interpreter::Flow Interpreter::ExecuteFor(const Stmt& statement) {
  const std::shared_ptr<LoopState> loop = MakeLoop(statement);
  bool any = false;
  ++loop_depth_;
  while (loop->Advance()) {
    any = true;
    ChargeStep();
    const ScopeGuard scope(this);  // what the body sets is gone in the next round
    scope_->Set("loop", Value(Value::State(loop)));
    Assign(*statement.target, loop->current);
    if (Execute(statement.body) == Flow::kBreak) break;
  }
  --loop_depth_;
  if (any) return Flow::kNormal;
  const ScopeGuard scope(this);
  return Execute(statement.otherwise);
}

void Interpreter::ExecuteSet(const Stmt& statement) {
  if (statement.kind == StmtKind::kSet) {
    return Assign(*statement.target, Evaluate(*statement.value));
  }
  Value value = Value::Of(Capture(statement.body));
  if (statement.value != nullptr) value = EvaluateFilter(*statement.value, &value);
  Assign(*statement.target, value);
}

void Interpreter::ExecuteWith(const Stmt& statement) {
  // All values are those from outside of the block.
  std::vector<Value> values;
  for (const auto& assignment : statement.assignments) {
    values.push_back(Evaluate(*assignment.second));
  }
  const ScopeGuard scope(this);
  for (size_t i = 0; i < values.size(); ++i) Assign(*statement.assignments[i].first, values[i]);
  Execute(statement.body);
}

Text Interpreter::Capture(const Block& block) {
  Text text;
  {
    const OutputGuard output(this, &text);
    const ScopeGuard scope(this);
    Execute(block);
  }
  ChargeText(text.size());
  return text;
}

void Interpreter::Assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) return scope_->Set(target.name, value);
  if (target.kind == ExprKind::kAttribute) {
    const Value object = Lookup(target.children[0]->name);
    if (!object.IsNamespace()) Fail("cannot assign attribute on non-namespace object");
    Value* current = object.names().Find(target.name);
    if (current != nullptr) {
      *current = value;
    } else {
      object.names().attributes.emplace_back(target.name, value);
    }
    return;
  }
  const std::vector<Value> items = Iterate(value);
  if (items.size() != target.children.size()) {
    Fail("cannot unpack {} values into {} names", items.size(), target.children.size());
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.children[i], items[i]);
}

}  // namespace masu::jinja
