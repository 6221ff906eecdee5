#include <cstdio>
#include <variant>

#include "base/environment.h"
#include "base/log.h"
#include "cli/commands.h"

namespace {

struct Run {
  int operator()(const masu::ServeOptions& o) const { return masu::RunServe(o); }
  int operator()(const masu::ChatOptions& o) const { return masu::RunChat(o); }
  int operator()(const masu::GenerateOptions& o) const { return masu::RunGenerate(o); }
  int operator()(const masu::InfoOptions& o) const { return masu::RunInfo(o); }
  int operator()(const masu::EvalOptions& o) const { return masu::RunEval(o); }
  int operator()(const masu::TokenizeOptions& o) const { return masu::RunTokenize(o); }
  int operator()(const masu::DetokenizeOptions& o) const { return masu::RunDetokenize(o); }
  int operator()(const masu::TemplateOptions& o) const { return masu::RunTemplate(o); }
  int operator()(const masu::PlanOptions& o) const { return masu::RunPlan(o); }
  int operator()(const masu::BenchOptions& o) const { return masu::RunBench(o); }
  int operator()(const masu::VersionOptions&) const {
    std::puts("masu " MASU_VERSION);
    return 0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (const auto name = masu::Environment::Read().log_level; name) {
    const auto level = masu::ParseLogLevel(*name);
    if (!level.ok()) return masu::PrintError(level.error());
    masu::SetLogLevel(*level);
  }
  const masu::ParsedCommandLine parsed = masu::ParseCommandLine(argc, argv);
  const int status = parsed.command ? std::visit(Run(), *parsed.command) : parsed.exit_code;
  // What a server prints is its log, which may go nowhere.
  if (parsed.command && std::holds_alternative<masu::ServeOptions>(*parsed.command)) return status;
  // A full disk shows at the last flush only; an answer that is lost must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const auto error =
        masu::MakeError(masu::ErrorCode::kInternal, "cannot write to standard output");
    return status != 0 ? status : masu::PrintError(error);
  }
  return status;
}
