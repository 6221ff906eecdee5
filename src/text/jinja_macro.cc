// Macros, call blocks and their arguments.
#include <algorithm>
#include <memory>

#include "text/jinja_guards.h"
#include "text/jinja_interpreter.h"

namespace masu::jinja {

// A macro sees the variables around its definition, as they are when it runs.
void Interpreter::CaptureScopes() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
}

Value Interpreter::MakeMacro(const Stmt& statement) {
  CaptureScopes();
  return Value::OfFunction(
      statement.signature.name,
      [&statement, scope = scope_](Interpreter& interpreter, const Arguments& arguments) {
        return interpreter.CallMacro(statement.signature, statement.body, scope, arguments);
      });
}

void Interpreter::ExecuteCallBlock(const Stmt& statement) {
  Emit(ToText(EvaluateCall(*statement.value, {{"caller", MakeMacro(statement)}})));
}

Value Interpreter::CallMacro(const Signature& signature, const Block& body, Scope* scope,
                             const Arguments& arguments) {
  const DepthGuard depth(this);
  Text text;
  {
    const OutputGuard output(this, &text);
    const ScopeGuard variables(this, scope);
    BindArguments(signature, arguments);
    Execute(body);
  }
  ChargeText(text.size());
  return Value::Of(std::move(text));
}

void Interpreter::BindArguments(const Signature& signature, const Arguments& arguments) {
  const auto& parameters = signature.parameters;
  const size_t given = arguments.positional.size();
  if (given > parameters.size() && !signature.uses_varargs) {
    Fail("macro '{}' takes not more than {} argument(s)", signature.name, parameters.size());
  }
  std::vector<bool> used(arguments.named.size(), false);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& entry) { return entry.first == parameter.name; });
    if (named != arguments.named.end()) {
      if (i < given) {
        Fail("macro '{}' got multiple values for argument '{}'", signature.name, parameter.name);
      }
      used[static_cast<size_t>(named - arguments.named.begin())] = true;
      scope_->Set(parameter.name, named->second);
    } else if (i < given) {
      scope_->Set(parameter.name, arguments.positional[i]);
    } else if (parameter.default_value != nullptr) {
      scope_->Set(parameter.name, Evaluate(*parameter.default_value));
    } else {
      scope_->Set(parameter.name, Value::OfUndefined(fmt::format("parameter '{}' was not provided",
                                                                 parameter.name)));
    }
  }
  auto rest = std::make_shared<Dict>();
  for (size_t i = 0; i < used.size(); ++i) {
    const auto& [name, value] = arguments.named[i];
    if (used[i]) continue;
    if (name == "caller" && signature.uses_caller) {
      scope_->Set("caller", value);
    } else if (signature.uses_kwargs) {
      rest->Set(Value::Of(Text(name, false)), value);
    } else {
      Fail("macro '{}' takes no keyword argument '{}'", signature.name, name);
    }
  }
  if (signature.uses_kwargs) scope_->Set("kwargs", Value::OfDict(std::move(rest)));
  if (!signature.uses_varargs) return;
  std::vector<Value> extra;
  for (size_t i = parameters.size(); i < given; ++i) extra.push_back(arguments.positional[i]);
  scope_->Set("varargs", Value::OfList(std::move(extra), List::Kind::kTuple));
}

}  // namespace masu::jinja
