// Products of the CPU backend: inputs in the form that a kernel takes, and how the work is cut.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/packed_weight.h"
#include "base/check.h"

namespace masu {
namespace {

// Rows of inputs per piece of work: those rows stay in L2 while a layer's weights stream past.
constexpr uint32_t kRowsPerPiece = 128;
constexpr uint32_t kPrepareGrain = 16;
static_assert(kRowsPerPiece % cpu::kTileRows == 0 && kPrepareGrain % cpu::kTileRows == 0);

constexpr size_t kAlign = 64;
size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
uint32_t GroupsOf(uint32_t inputs) { return (inputs + cpu::kGroup - 1) / cpu::kGroup; }

}  // namespace

CpuOps::InputForm CpuOps::FormOf(const LinearArgs& args) const {
  const cpu::Format format = PanelWeight::Of(args.weight).kernel_format();
  if (args.activations == Activations::kInt8 && IsBlock(format))
    return {.int8 = true, .nibbles = IsNibble(format)};
  const bool bf16 = args.activations == Activations::kBFloat16 && FitsTiles(format);
  const bool tiles = bf16 && kernels_.linear_tiles != nullptr;
  return {.tiles = tiles,
          .bf16 = bf16 && !tiles && kernels_.linear_dots != nullptr,
          .block_sums = HasMinimum(format)};
}

CpuOps::PreparedInputs CpuOps::InputsOf(const LinearArgs& args) const {
  return {.x = args.x,
          .x_stride = args.x_stride,
          .rows = args.rows,
          .inputs = args.weight->inputs(),
          .form = FormOf(args)};
}

// Of inputs as bfloat16 numbers, or as int8 codes.
size_t CpuOps::RoomFor(const PreparedInputs& inputs) {
  return cpu::RoomForRows(inputs.rows, cpu::kGroup * (inputs.form.int8 ? 1 : sizeof(uint16_t)));
}

// What the batch needs, each input once in each form; returns the bytes.
size_t CpuOps::PrepareInputs(LinearBatch batch) {
  prepared_.clear();
  size_t bytes = 0;
  const auto take = [&bytes](size_t size) {
    const size_t at = bytes;
    bytes += Aligned(size);
    return at;
  };
  for (const LinearArgs& args : batch) {
    PreparedInputs inputs = InputsOf(args);
    const auto same = [&](const PreparedInputs& other) { return other.SameAs(inputs); };
    if (inputs.rows == 0 || std::ranges::any_of(prepared_, same)) continue;
    const size_t rows = inputs.rows;
    const size_t groups = GroupsOf(inputs.inputs);
    const InputForm form = inputs.form;
    if (form.tiles) {
      const size_t blocks = (rows + cpu::kTileRows - 1) / cpu::kTileRows;
      inputs.numbers_at = take(blocks * groups * cpu::kTileBytes);
    }
    if (form.bf16)
      inputs.numbers_at = take(groups * RoomFor(inputs) * cpu::kGroup * sizeof(uint16_t));
    if (form.block_sums) inputs.sums_at = take(rows * groups * sizeof(float));
    if (form.int8) {
      const size_t all = groups * RoomFor(inputs);
      inputs.codes_at = take(all * cpu::kGroup);
      inputs.scales_at = take(all * sizeof(float));
      inputs.sums_at = take(all * 2 * sizeof(int32_t));
    }
    prepared_.push_back(inputs);
  }
  return bytes;
}

void CpuOps::FillInputs(const PreparedInputs& inputs) {
  const InputForm form = inputs.form;
  if (form == InputForm{}) return;
  const size_t groups = GroupsOf(inputs.inputs);
  std::byte* base = inputs_.data();
  auto* numbers = reinterpret_cast<uint8_t*>(base + inputs.numbers_at);
  auto* sums = reinterpret_cast<float*>(base + inputs.sums_at);
  pool_.For(inputs.rows, kPrepareGrain, [&](uint32_t begin, uint32_t end, uint32_t) {
    const float* x = inputs.x + begin * inputs.x_stride;
    if (form.tiles) {
      kernels_.pack_rows(x, inputs.x_stride, end - begin, inputs.inputs,
                         numbers + begin / cpu::kTileRows * groups * cpu::kTileBytes);
    }
    for (size_t r = begin; r < end; ++r, x += inputs.x_stride) {
      if (form.bf16) {
        kernels_.bf16_row(x, inputs.inputs, RoomFor(inputs) * cpu::kGroup,
                          reinterpret_cast<uint16_t*>(numbers) + r * cpu::kGroup);
      }
      if (form.block_sums) kernels_.block_sums(x, inputs.inputs, sums + r * groups);
      if (form.int8) {
        kernels_.quantize_row(x, inputs.inputs, form.nibbles, RoomFor(inputs),
                              reinterpret_cast<int8_t*>(base + inputs.codes_at) + r * cpu::kGroup,
                              reinterpret_cast<float*>(base + inputs.scales_at) + r,
                              reinterpret_cast<int32_t*>(base + inputs.sums_at) + r * 2);
      }
    }
  });
}

CpuOps::LinearJob CpuOps::MakeJob(const LinearArgs& args) {
  const PanelWeight& weight = PanelWeight::Of(args.weight);
  const PreparedInputs wanted = InputsOf(args);
  const InputForm form = wanted.form;
  const PreparedInputs& inputs = *std::ranges::find_if(
      prepared_, [&](const PreparedInputs& prepared) { return prepared.SameAs(wanted); });
  std::byte* base = inputs_.data();
  LinearJob job = {.task = {.format = weight.kernel_format(),
                            .panels = weight.data(),
                            .inputs = weight.inputs(),
                            .outputs = weight.outputs(),
                            .x = args.x,
                            .x_stride = args.x_stride,
                            .rows = args.rows,
                            .y = args.y,
                            .y_stride = args.y_stride,
                            .bias = args.bias,
                            .accumulate = args.accumulate},
                   .run = kernels_.linear,
                   .panels = weight.panels()};
  if (form.tiles) {
    job.run = kernels_.linear_tiles;
    job.task.x_tiles = reinterpret_cast<const uint8_t*>(base + inputs.numbers_at);
  }
  if (form.bf16) {
    job.run = kernels_.linear_dots;
    job.task.x16 = reinterpret_cast<const uint16_t*>(base + inputs.numbers_at);
    job.task.x16_rows = RoomFor(inputs);
  }
  if (form.block_sums) job.task.block_sums = reinterpret_cast<const float*>(base + inputs.sums_at);
  if (form.int8) {
    job.run = kernels_.linear_int8;
    job.task.x8 = reinterpret_cast<const int8_t*>(base + inputs.codes_at);
    job.task.x8_scales = reinterpret_cast<const float*>(base + inputs.scales_at);
    job.task.x8_sums = reinterpret_cast<const int32_t*>(base + inputs.sums_at);
    job.task.x8_rows = RoomFor(inputs);
  }
  return job;
}

namespace {

// Rows from `row` on.
cpu::LinearTask FromRow(cpu::LinearTask task, uint32_t row) {
  const size_t groups = GroupsOf(task.inputs);
  task.rows = std::min(kRowsPerPiece, task.rows - row);
  task.x += row * task.x_stride;
  task.y += row * task.y_stride;
  if (task.x_tiles != nullptr) task.x_tiles += row / cpu::kTileRows * groups * cpu::kTileBytes;
  if (task.x16 != nullptr) task.x16 += size_t{row} * cpu::kGroup;
  if (task.block_sums != nullptr) task.block_sums += row * groups;
  if (task.x8 != nullptr) {
    task.x8 += size_t{row} * cpu::kGroup;
    task.x8_scales += row;
    task.x8_sums += size_t{row} * 2;
  }
  return task;
}

}  // namespace

void CpuOps::Linear(LinearBatch batch) {
  const size_t bytes = PrepareInputs(batch);
  if (inputs_.size() < bytes) inputs_.resize(bytes);
  for (const PreparedInputs& inputs : prepared_) FillInputs(inputs);
  jobs_.clear();
  uint32_t pieces = 0;
  for (const LinearArgs& args : batch) {
    if (args.rows == 0) continue;
    jobs_.push_back(MakeJob(args));
    jobs_.back().first_piece = pieces;
    pieces += jobs_.back().panels * ((args.rows + kRowsPerPiece - 1) / kRowsPerPiece);
  }
  // Pieces are (row block, panel), row blocks outermost. At least 8 pieces a thread, so that the
  // last one is short.
  const uint32_t grain = std::clamp(pieces / (pool_.size() * 8), 1u, 16u);
  pool_.For(pieces, grain, [&](uint32_t begin, uint32_t end, uint32_t) {
    size_t j = 0;
    for (uint32_t piece = begin; piece < end;) {
      while (j + 1 < jobs_.size() && jobs_[j + 1].first_piece <= piece) ++j;
      const LinearJob& job = jobs_[j];
      const uint32_t local = piece - job.first_piece;
      cpu::LinearTask task = FromRow(job.task, local / job.panels * kRowsPerPiece);
      task.panel_begin = local % job.panels;
      task.panel_end = std::min(job.panels, task.panel_begin + (end - piece));
      job.run(task);
      piece += task.panel_end - task.panel_begin;
    }
  });
}

}  // namespace masu
