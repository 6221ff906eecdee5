#include "text/jinja_parser.h"

#include <initializer_list>
#include <utility>

#include "text/jinja_expr_parser.h"
#include "text/jinja_lexer.h"

namespace masu::jinja {
namespace {

constexpr int kMaxBlockDepth = 100;  // nested blocks; real templates stay below fifteen

class Parser : public ExprParser {
 public:
  explicit Parser(std::string_view source) : ExprParser(Tokenize(source)) {}

  Block Run() {
    Block block = ParseBlock({});
    if (!unknown_filters_.empty()) {
      throw TemplateError{unknown_filters_[0].message, unknown_filters_[0].line};
    }
    return block;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  static StmtPtr Make(StmtKind kind, int line) {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  // Statements up to a tag whose name is in `ends`; stops behind "{%", before the name. Without
  // ends: up to the end of the template.
  Block ParseBlock(Names ends) {
    if (++depth_ > kMaxBlockDepth) {
      FailAt(line(), "blocks are nested deeper than {} levels", kMaxBlockDepth);
    }
    Block block;
    const int begin = line();
    for (;;) {
      const Token& token = Peek();
      if (token.type == TokenType::kEnd) {
        if (ends.size() > 0) FailAt(begin, "'{}' is missing", *(ends.end() - 1));
        break;
      }
      if (token.type == TokenType::kData) {
        StmtPtr data = Make(StmtKind::kData, token.line);
        data->text = Text::Trusted(Next().value);
        block.push_back(std::move(data));
      } else if (token.type == TokenType::kVariableBegin) {
        block.push_back(ParseOutput());
      } else {
        Next();
        if (AtOneOf(ends)) break;
        if (StmtPtr statement = ParseStatement()) block.push_back(std::move(statement));
      }
    }
    --depth_;
    return block;
  }

  bool AtOneOf(Names names) const {
    for (const std::string_view name : names) {
      if (IsName(name)) return true;
    }
    return false;
  }

  void ExpectBlockEnd() {
    if (Peek().type != TokenType::kBlockEnd) Unexpected("the end of the tag");
    Next();
  }

  // A body that ends with the tag `end`, which is consumed.
  Block ParseBody(std::string_view end) {
    ExpectBlockEnd();
    Block body = ParseBlock({end});
    Next();
    ExpectBlockEnd();
    return body;
  }

  StmtPtr ParseOutput() {
    StmtPtr node = Make(StmtKind::kOutput, Next().line);
    node->value = ParseTuple();
    if (Peek().type != TokenType::kVariableEnd) Unexpected("'}}'");
    Next();
    return node;
  }

  StmtPtr ParseStatement() {
    const int at = line();
    const std::string name = ExpectName();
    if (name == "if") return ParseIf(at);
    if (name == "for") return ParseFor(at);
    if (name == "set") return ParseSet(at);
    if (name == "macro") return ParseMacro(at);
    if (name == "call") return ParseCall(at);
    if (name == "filter") return ParseFilterBlock(at);
    if (name == "with") return ParseWith(at);
    if (name == "generation") return ParseGeneration(at);
    if (name == "break" || name == "continue") return ParseJump(name, at);
    if (name == "print") {
      StmtPtr node = Make(StmtKind::kOutput, at);
      node->value = ParseTuple();
      ExpectBlockEnd();
      return node;
    }
    FailAt(at, "the statement '{}' is not supported", name);
  }

  StmtPtr ParseIf(int at) {
    StmtPtr node = Make(StmtKind::kIf, at);
    const bool outer = std::exchange(inside_condition_, true);
    for (;;) {
      Branch branch;
      branch.condition = ParseTuple(false);
      ExpectBlockEnd();
      branch.body = ParseBlock({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
      if (!SkipName("elif")) break;
    }
    if (SkipName("else")) {
      node->otherwise = ParseBody("endif");
    } else {
      Next();
      ExpectBlockEnd();
    }
    inside_condition_ = outer;
    return node;
  }

  StmtPtr ParseFor(int at) {
    StmtPtr node = Make(StmtKind::kFor, at);
    node->target = ParseTarget(false);
    if (!SkipName("in")) Unexpected("'in'");
    node->value = ParseTuple(false);
    const bool outer = std::exchange(inside_condition_, false);
    if (SkipName("if")) node->condition = ParseExpression();
    if (IsName("recursive")) FailAt(at, "recursive loops are not supported");
    ExpectBlockEnd();
    ++loops_;
    node->body = ParseBlock({"else", "endfor"});
    --loops_;
    if (SkipName("else")) {
      node->otherwise = ParseBody("endfor");
    } else {
      Next();
      ExpectBlockEnd();
    }
    inside_condition_ = outer;
    return node;
  }

  StmtPtr ParseSet(int at) {
    StmtPtr node = Make(StmtKind::kSet, at);
    node->target = ParseTarget(true);
    if (SkipOperator("=")) {
      node->value = ParseTuple();
      ExpectBlockEnd();
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    const bool outer = std::exchange(inside_condition_, false);
    if (SkipOperator("|")) node->value = ParseFilterChain();
    node->body = ParseBody("endset");
    inside_condition_ = outer;
    return node;
  }

  void ParseParameters(Signature* signature) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!signature->parameters.empty()) ExpectOperator(",");
      Parameter parameter;
      parameter.name = ExpectName();
      if (SkipOperator("=")) {
        parameter.default_value = ParseExpression();
      } else if (!signature->parameters.empty() &&
                 signature->parameters.back().default_value != nullptr) {
        FailAt(line(), "a parameter without a default follows one with a default");
      }
      signature->parameters.push_back(std::move(parameter));
    }
    ExpectOperator(")");
  }

  // The body of a macro or call block: loops and conditions around it do not reach inside.
  Block ParseMacroBody(Signature* signature, std::string_view end) {
    Signature* outer_signature = std::exchange(signature_, signature);
    const bool outer_condition = std::exchange(inside_condition_, false);
    const int outer_loops = std::exchange(loops_, 0);
    Block body = ParseBody(end);
    signature_ = outer_signature;
    inside_condition_ = outer_condition;
    loops_ = outer_loops;
    return body;
  }

  StmtPtr ParseMacro(int at) {
    StmtPtr node = Make(StmtKind::kMacro, at);
    node->signature.name = ExpectName();
    ParseParameters(&node->signature);
    node->body = ParseMacroBody(&node->signature, "endmacro");
    return node;
  }

  StmtPtr ParseCall(int at) {
    StmtPtr node = Make(StmtKind::kCall, at);
    node->signature.name = "caller";
    if (IsOperator("(")) ParseParameters(&node->signature);
    node->value = ParseExpression();
    if (node->value->kind != ExprKind::kCall) FailAt(at, "expected a call");
    node->body = ParseMacroBody(&node->signature, "endcall");
    return node;
  }

  StmtPtr ParseFilterBlock(int at) {
    StmtPtr node = Make(StmtKind::kFilterBlock, at);
    node->value = ParseFilterChain();
    const bool outer = std::exchange(inside_condition_, false);
    node->body = ParseBody("endfilter");
    inside_condition_ = outer;
    return node;
  }

  StmtPtr ParseWith(int at) {
    StmtPtr node = Make(StmtKind::kWith, at);
    while (Peek().type != TokenType::kBlockEnd) {
      if (!node->assignments.empty()) ExpectOperator(",");
      ExprPtr target = ParseTarget(false, false);
      ExpectOperator("=");
      node->assignments.emplace_back(std::move(target), ParseExpression());
    }
    const bool outer = std::exchange(inside_condition_, false);
    node->body = ParseBody("endwith");
    inside_condition_ = outer;
    return node;
  }

  // Marks what the assistant wrote, for training; here only a scope, as in transformers.
  StmtPtr ParseGeneration(int at) {
    StmtPtr node = Make(StmtKind::kScope, at);
    node->body = ParseMacroBody(signature_, "endgeneration");
    return node;
  }

  StmtPtr ParseJump(const std::string& name, int at) {
    if (loops_ == 0) FailAt(at, "'{}' outside of a loop", name);
    ExpectBlockEnd();
    return Make(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, at);
  }

  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block ParseTemplate(std::string_view source) { return Parser(source).Run(); }

}  // namespace masu::jinja
