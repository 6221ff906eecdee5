// `masu bench`: runs what was asked for and writes its reports.
#include <cstdio>

#include "base/report_file.h"
#include "bench/engine_benchmark.h"
#include "bench/integrity_benchmark.h"
#include "bench/kernel_benchmark.h"
#include "bench/report.h"
#include "bench/serve_benchmark.h"
#include "cli/commands.h"

namespace masu {
namespace {

struct RunOne {
  Result<BenchReport> operator()(const KernelBenchOptions& options) const {
    return RunKernelBenchmark(options, ShowProgress);
  }
  Result<BenchReport> operator()(const EngineBenchOptions& options) const {
    return RunEngineBenchmark(options, ShowProgress);
  }
  Result<BenchReport> operator()(const IntegrityBenchOptions& options) const {
    return RunIntegrityBenchmark(options, ShowProgress);
  }
  Result<BenchReport> operator()(const ServeBenchOptions& options) const {
    return RunServeBenchmark(options, ShowProgress);
  }
  Result<BenchReport> operator()(const ReportBenchOptions& options) const {
    return RunReportBenchmark(options);
  }
};

Result<bool> Bench(const BenchOptions& options) {
  MASU_ASSIGN_OR_RETURN(ReportFile json, ReportFile::Open(options.json));
  MASU_ASSIGN_OR_RETURN(const BenchReport report, std::visit(RunOne(), options.command));
  std::fputs(options.json == "-" ? (report.json + "\n").c_str() : report.text.c_str(), stdout);
  MASU_TRY(json.Write(report.json + "\n"));
  return report.passed;
}

}  // namespace

int RunBench(const BenchOptions& options) {
  const Result<bool> passed = Bench(options);
  if (!passed.ok()) return PrintError(passed.error());
  return *passed ? 0 : 1;
}

}  // namespace masu
