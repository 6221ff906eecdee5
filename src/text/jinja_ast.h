// The syntax tree of a template. Immutable after parsing: share freely between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace masu::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kConstant,     // constant
  kName,         // name
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value, ...
  kAttribute,    // children[0] . name
  kItem,         // children[0] [ children[1] ]
  kSlice,        // children[0] [ children[1] : children[2] : children[3] ], null where left out
  kCall,         // children[0] ( arguments )
  kFilter,       // children[0] | name ( arguments ); children[0] is null in a filter block
  kTest,         // children[0] is name ( arguments )
  kUnary,        // name children[0], name is - or +
  kBinary,       // children[0] name children[1]
  kAnd,          // children[0], children[1]
  kOr,           // children[0], children[1]
  kNot,          // children[0]
  kCompare,      // children[0] operators[0] children[1] operators[1] ...
  kConcat,       // children, joined as strings
  kConditional,  // children[0] if children[1] else children[2], which may be null
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *expression
  ExprPtr double_star;  // **expression
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  CallArguments arguments;
  int depth = 1;  // bounded by the parser, since everything walks trees by recursion
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

enum class StmtKind {
  kData,         // text
  kOutput,       // value
  kIf,           // branches, otherwise
  kFor,          // target in value if condition: body, otherwise
  kSet,          // target = value
  kSetBlock,     // target = body | value
  kMacro,        // name(parameters): body
  kCall,         // call(parameters) value: body
  kFilterBlock,  // body | value
  kWith,         // assignments: body
  kScope,        // body with variables of its own (a generation block)
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // null: none
};

struct Signature {
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 0;
  Text text;
  ExprPtr value;
  ExprPtr target;
  ExprPtr condition;
  std::vector<Branch> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  Signature signature;
  Block body;
  Block otherwise;
};

}  // namespace masu::jinja
