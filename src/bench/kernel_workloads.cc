#include "bench/kernel_workloads.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <sstream>

#include "bench/random_data.h"
#include "plan/kv_options.h"

namespace masu {
namespace {

// Up to so many rows of attention are requests that decode; from so many on, a chunk of a prompt.
constexpr uint32_t kMostDecodes = 64;
constexpr uint32_t kLeastChunk = 64;
// Rows of logits are made for tokens that are sampled: no more than requests that decode.
constexpr uint32_t kMostLogitRows = 64;

// Together the copies that calls go round over are so many times the last-level cache: with least
// recently used eviction two would do, caches of today evict otherwise.
constexpr uint64_t kColdFactor = 4;
constexpr uint64_t kMostCopies = 64;

uint32_t CopiesOf(double bytes) {
  const double wanted = static_cast<double>(kColdFactor * LastLevelCacheBytes()) / bytes;
  return static_cast<uint32_t>(std::clamp(std::ceil(wanted), 1.0, double{kMostCopies}));
}

double Floats(double count) { return count * sizeof(float); }

// --- linear ---

// Products that run as one parallel region: Q, K and V, for instance.
class LinearWorkload final : public KernelWorkload {
 public:
  static Result<std::unique_ptr<KernelWorkload>> Make(Ops& ops, const KernelCase& what,
                                                      const KernelSettings& settings,
                                                      std::unique_ptr<KernelWorkload> last) {
    auto* same = dynamic_cast<LinearWorkload*>(last.get());
    std::unique_ptr<LinearWorkload> load;
    if (same != nullptr && same->HasWeightsOf(what)) {
      load.reset(same);
      (void)last.release();
    } else {
      last.reset();  // its weights go before others are packed
      load = std::make_unique<LinearWorkload>(ops, what);
      MASU_TRY(load->Pack());
    }
    load->SetRows(what.rows, settings);
    return std::unique_ptr<KernelWorkload>(std::move(load));
  }

  LinearWorkload(Ops& ops, KernelCase what) : ops_(ops), what_(std::move(what)) {
    const BlockShape& s = what_.shape;
    const uint32_t q = s.num_heads * s.head_dim;
    const uint32_t kv = s.num_kv_heads * s.head_dim;
    inputs_ = s.hidden_size;
    outputs_ = {s.hidden_size};
    if (what_.part == "qkv") outputs_ = {q, kv, kv};
    if (what_.part == "gate_up") outputs_ = {s.intermediate_size, s.intermediate_size};
    if (what_.part == "head") outputs_ = {s.vocab_size};
    if (what_.part == "output") inputs_ = q;
    if (what_.part == "down") inputs_ = s.intermediate_size;
    stride_ = std::accumulate(outputs_.begin(), outputs_.end(), 0u);
  }

  void Run() override {
    const Copy& copy = copies_[next_];
    next_ = (next_ + 1) % copies_.size();
    products_.clear();
    float* y = y_.data();
    for (const auto& weight : copy) {
      products_.push_back({.weight = weight.get(),
                           .x = x_.data(),
                           .x_stride = inputs_,
                           .rows = what_.rows,
                           .y = y,
                           .y_stride = stride_,
                           .activations = activations_});
      y += weight->outputs();
    }
    ops_.Linear(products_);
  }

 private:
  using Copy = std::vector<std::unique_ptr<PackedWeight>>;

  bool HasWeightsOf(const KernelCase& what) const {
    return what.part == what_.part && what.dtype == what_.dtype &&
           what.shape.name == what_.shape.name;
  }

  Result<void> Pack() {
    MASU_ASSIGN_OR_RETURN(const GgmlFormat format, ParseWeightFormat(what_.dtype));
    const uint32_t block = BlockShapeOf(format).elements;
    if (inputs_ % block != 0) {
      return InvalidArgument("{} has blocks of {} values, which do not divide {} inputs",
                             what_.dtype, block, inputs_);
    }
    const uint32_t most = *std::max_element(outputs_.begin(), outputs_.end());
    const std::vector<std::byte> source = RandomWeight(format, most, inputs_);
    size_t copies = 1;
    while (copies_.size() < copies) {
      Copy copy;
      for (const uint32_t count : outputs_) {
        MASU_ASSIGN_OR_RETURN(
            auto weight,
            ops_.PackWeight(
                {.format = format, .outputs = count, .inputs = inputs_, .data = source.data()}));
        if (copies_.empty()) work.weight_bytes += static_cast<double>(weight->bytes());
        copy.push_back(std::move(weight));
      }
      copies_.push_back(std::move(copy));
      copies = CopiesOf(work.weight_bytes);
    }
    return {};
  }

  void SetRows(uint32_t rows, const KernelSettings& settings) {
    what_.rows = rows;
    const bool blocks = BlockShapeOf(copies_.front().front()->format()).elements > 1;
    activations_ = settings.int8_activations && blocks ? Activations::kInt8
                   : settings.bf16_activations         ? Activations::kBFloat16
                                                       : Activations::kFloat32;
    x_ = RandomActivations(size_t{rows} * inputs_, settings.bf16_activations);
    y_.assign(size_t{rows} * stride_, 0);
    work.activation_bytes = Floats(1.0 * rows * (inputs_ + stride_));
    work.operations = 2.0 * rows * inputs_ * stride_;
  }

  Ops& ops_;
  KernelCase what_;
  uint32_t inputs_ = 0;
  std::vector<uint32_t> outputs_;  // of each product of the region
  uint32_t stride_ = 0;            // all of them
  Activations activations_ = Activations::kFloat32;
  std::vector<Copy> copies_;
  std::vector<LinearArgs> products_;
  std::vector<float> x_;  // [rows, inputs]
  std::vector<float> y_;  // [rows, all outputs]
  size_t next_ = 0;
};

// --- attention and kv_write ---

// One layer of a cache with random pages in random order. A page holds as many layers as calls go
// round over, one after the other as a model does.
class CacheWorkload final : public KernelWorkload {
 public:
  static Result<std::unique_ptr<KernelWorkload>> Make(Ops& ops, const KernelCase& what,
                                                      const KernelSettings& settings) {
    auto load = std::make_unique<CacheWorkload>();
    load->ops_ = &ops;
    load->writes_ = what.op == "kv_write";
    load->shape_ = what.shape;
    load->bf16_ = settings.bf16_activations;
    const bool chunk = what.part == "chunk";
    const uint32_t sequences = chunk ? 1 : what.rows;
    const uint32_t rows_each = chunk ? what.rows : 1;
    MASU_TRY(load->MakeCache(what, settings.block_size, sequences));
    load->MakeSequences(what.context, sequences, rows_each);
    load->CountWork(what, sequences, rows_each);
    return std::unique_ptr<KernelWorkload>(std::move(load));
  }

  void Run() override {
    const auto count = static_cast<uint32_t>(sequences_.size());
    const size_t q = size_t{shape_.num_heads} * shape_.head_dim;
    const size_t kv = size_t{shape_.num_kv_heads} * shape_.head_dim;
    const size_t stride = q + 2 * kv;
    if (writes_) {
      ops_->KvWrite({.arena = arena_.get(),
                     .sequences = sequences_.data(),
                     .num_sequences = count,
                     .layer = layer_,
                     .k = qkv_.data() + q,
                     .v = qkv_.data() + q + kv,
                     .row_stride = stride});
    } else {
      ops_->Attention({.arena = arena_.get(),
                       .sequences = sequences_.data(),
                       .num_sequences = count,
                       .layer = layer_,
                       .num_heads = shape_.num_heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                       .q = qkv_.data(),
                       .q_stride = stride,
                       .out = out_.data(),
                       .out_stride = q,
                       .round_to_bf16 = bf16_});
    }
    layer_ = (layer_ + 1) % static_cast<uint32_t>(layout_.layers.size());
  }

 private:
  Result<void> MakeCache(const KernelCase& what, uint32_t block_size, uint32_t sequences) {
    MASU_ASSIGN_OR_RETURN(const KvLayerSides sides, ParseKvSides(what.dtype));
    KvLayoutSpec spec{.id = LayoutId(0),
                      .layers = {sides},
                      .block_size = block_size,
                      .num_kv_heads = what.shape.num_kv_heads,
                      .head_dim = what.shape.head_dim};
    MASU_ASSIGN_OR_RETURN(layout_, MakeKvPageLayout(spec));
    bytes_per_token_ = static_cast<double>(layout_.page_bytes) / block_size;
    // Writes touch the last page of each sequence only, and are cold soon enough.
    const uint32_t layers = CopiesOf(bytes_per_token_ * what.context * sequences);
    spec.layers.assign(layers, sides);
    MASU_ASSIGN_OR_RETURN(layout_, MakeKvPageLayout(spec));
    const uint64_t pages = uint64_t{sequences} * ((what.context + block_size - 1) / block_size);
    MASU_ASSIGN_OR_RETURN(arena_, ops_->CreateKvArena({pages * layout_.page_bytes}, pages));
    pages_.resize(pages);
    for (uint64_t i = 0; i < pages; ++i) pages_[i] = i * layout_.page_bytes;
    RandomPages random(layout_);
    for (const uint64_t offset : pages_) random.Write(*ops_, *arena_, offset);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(1));
    return {};
  }

  void MakeSequences(uint32_t context, uint32_t sequences, uint32_t rows_each) {
    const size_t pages_each = pages_.size() / sequences;
    for (uint32_t i = 0; i < sequences; ++i) {
      sequences_.push_back({.layout = &layout_,
                            .page_offsets = pages_.data() + i * pages_each,
                            .first_row = i * rows_each,
                            .rows = rows_each,
                            .kv_length = context});
    }
    const size_t rows = size_t{sequences} * rows_each;
    const size_t width = size_t{shape_.num_heads + 2 * shape_.num_kv_heads} * shape_.head_dim;
    qkv_ = RandomActivations(rows * width, bf16_);
    out_.resize(rows * shape_.num_heads * shape_.head_dim);
  }

  void CountWork(const KernelCase& what, uint32_t sequences, uint32_t rows_each) {
    const double heads = 1.0 * what.shape.num_heads * what.shape.head_dim;
    const double kv_heads = 1.0 * what.shape.num_kv_heads * what.shape.head_dim;
    if (writes_) {
      work.cache_bytes = bytes_per_token_ * what.rows;
      work.activation_bytes = Floats(2 * kv_heads * what.rows);
      return;
    }
    work.cache_bytes = bytes_per_token_ * what.context * sequences;
    work.activation_bytes = Floats(2 * heads * what.rows);
    // A row sees itself and all before it; a score and its share of the output take a
    // multiplication and an addition of every value each.
    const double seen = what.context - 0.5 * (rows_each - 1);
    work.operations = 4 * heads * seen * what.rows;
  }

  Ops* ops_ = nullptr;
  bool writes_ = false;
  bool bf16_ = false;
  BlockShape shape_;
  KvPageLayout layout_;
  double bytes_per_token_ = 0;  // of one layer
  std::unique_ptr<KvArena> arena_;
  std::vector<uint64_t> pages_;
  std::vector<AttentionSequence> sequences_;
  std::vector<float> qkv_;  // [rows, heads + 2 * kv_heads, head_dim]
  std::vector<float> out_;  // [rows, heads, head_dim]
  uint32_t layer_ = 0;
};

// --- operations on rows ---

class RowWorkload final : public KernelWorkload {
 public:
  RowWorkload(Ops& ops, KernelCase what, bool bf16)
      : ops_(ops), what_(std::move(what)), bf16_(bf16) {
    const BlockShape& s = what_.shape;
    const double rows = what_.rows;
    // Functions such as exp and sqrt count as one operation.
    if (what_.op == "rms_norm") {
      Allocate(s.hidden_size, s.hidden_size);
      weight_ = RandomActivations(s.hidden_size);
      work.operations = 4 * rows * s.hidden_size;
    } else if (what_.op == "silu") {
      Allocate(2 * size_t{s.intermediate_size}, s.intermediate_size);
      work.operations = 5 * rows * s.intermediate_size;
    } else if (what_.op == "rope") {
      const size_t width = size_t{s.num_heads} * s.head_dim;
      Allocate(width, 0);
      work.activation_bytes *= 2;  // in place: read and written
      work.operations = 3 * rows * static_cast<double>(width);
      positions_.resize(what_.rows);
      std::iota(positions_.begin(), positions_.end(), 0);
      MakeRotations();
    } else {
      Allocate(s.vocab_size, 0);
      stats_.resize(what_.rows);
      work.operations = 4 * rows * s.vocab_size;
    }
  }

  void Run() override {
    const BlockShape& s = what_.shape;
    if (what_.op == "rms_norm") {
      ops_.RmsNorm({.x = x_.data(),
                    .weight = weight_.data(),
                    .out = out_.data(),
                    .rows = what_.rows,
                    .size = s.hidden_size,
                    .eps = 1e-5f,
                    .round_to_bf16 = bf16_});
    } else if (what_.op == "silu") {
      ops_.SiluMul({.gate_up = x_.data(),
                    .out = out_.data(),
                    .rows = what_.rows,
                    .size = s.intermediate_size,
                    .round_to_bf16 = bf16_});
    } else if (what_.op == "rope") {
      ops_.Rope({.x = x_.data(),
                 .x_stride = size_t{s.num_heads} * s.head_dim,
                 .positions = positions_.data(),
                 .cos_sin = weight_.data(),
                 .rows = what_.rows,
                 .heads = s.num_heads,
                 .head_dim = s.head_dim});
    } else {
      ops_.RowStatistics(
          {.logits = x_.data(), .out = stats_.data(), .rows = what_.rows, .size = s.vocab_size});
    }
  }

 private:
  void Allocate(size_t in, size_t out) {
    x_ = RandomActivations(what_.rows * in);
    out_.resize(what_.rows * out);
    work.activation_bytes = Floats(static_cast<double>(x_.size() + out_.size()));
  }

  // True rotations: calls turn the same numbers again and again, which must not grow.
  void MakeRotations() {
    const uint32_t half = what_.shape.head_dim / 2;
    const std::vector<float> all = RandomActivations(size_t{what_.rows} * half);
    for (uint32_t row = 0; row < what_.rows; ++row) {
      const std::span angles(all.data() + size_t{row} * half, half);
      for (const float angle : angles) weight_.push_back(std::cos(angle));
      for (const float angle : angles) weight_.push_back(std::sin(angle));
    }
  }

  Ops& ops_;
  KernelCase what_;
  bool bf16_;
  std::vector<float> x_;       // [rows, in]
  std::vector<float> out_;     // [rows, out]
  std::vector<float> weight_;  // of the norm, or cosines and sines
  std::vector<int32_t> positions_;
  std::vector<RowStats> stats_;
};

bool HasCache(const std::string& op) { return op == "attention" || op == "kv_write"; }

// Those of all numbers of rows stand together, so that weights are set up once for them.
void AddCases(const KernelSettings& settings, KernelCase one, std::vector<KernelCase>& cases) {
  for (const uint32_t rows : settings.rows) {
    one.rows = rows;
    if ((one.part == "head" || one.op == "row_stats") && rows > kMostLogitRows) continue;
    if (!HasCache(one.op)) {
      cases.push_back(one);
      continue;
    }
    one.context = std::max(settings.context, rows);
    one.part = "decode";
    if (rows <= kMostDecodes) cases.push_back(one);
    one.part = "chunk";
    if (rows >= kLeastChunk) cases.push_back(one);
  }
}

}  // namespace

Result<BlockShape> ParseBlockShape(const std::string& text) {
  const BlockShape known[] = {{"smollm2", 576, 1536, 9, 3, 64},
                              {"1b", 2048, 8192, 32, 8, 64},
                              {"8b", 4096, 14336, 32, 8, 128, 128'256}};
  for (const BlockShape& shape : known) {
    if (shape.name == text) return shape;
  }
  BlockShape shape{.name = text};
  std::istringstream stream(text);
  char slash[4] = {};
  stream >> shape.hidden_size >> slash[0] >> shape.intermediate_size >> slash[1] >>
      shape.num_heads >> slash[2] >> shape.num_kv_heads >> slash[3] >> shape.head_dim;
  const bool read = stream && stream.eof() && std::string_view(slash, 4) == "////";
  const uint32_t largest =
      std::max({shape.hidden_size, shape.intermediate_size, shape.num_heads, shape.head_dim});
  if (!read || shape.hidden_size == 0 || shape.intermediate_size == 0 || shape.num_heads == 0 ||
      shape.num_kv_heads == 0 || shape.head_dim == 0 || largest > 1u << 20 ||
      shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument(
        "--shape '{}' is unknown; use smollm2, 1b, 8b, or HIDDEN/FFN/HEADS/KV_HEADS/HEAD_DIM such "
        "as 2048/8192/32/8/64",
        text);
  }
  return shape;
}

Result<KvLayerSides> ParseKvSides(const std::string& name) {
  MASU_ASSIGN_OR_RETURN(const KvOption option, MakeKvOption({.dtype = name}, {.num_layers = 1}));
  return option.sides;
}

std::vector<KernelCase> ListCases(const KernelSettings& settings) {
  std::vector<KernelCase> cases;
  for (const std::string& op : settings.ops) {
    for (const BlockShape& shape : settings.shapes) {
      if (op == "linear") {
        for (const std::string& format : settings.formats) {
          for (const char* part : {"qkv", "output", "gate_up", "down", "head"})
            AddCases(settings, {.op = op, .part = part, .dtype = format, .shape = shape}, cases);
        }
      } else if (HasCache(op)) {
        for (const std::string& kv : settings.kv)
          AddCases(settings, {.op = op, .dtype = kv, .shape = shape}, cases);
      } else {
        AddCases(settings, {.op = op, .shape = shape}, cases);
      }
    }
  }
  return cases;
}

Result<std::unique_ptr<KernelWorkload>> MakeWorkload(Ops& ops, const KernelCase& what,
                                                     const KernelSettings& settings,
                                                     std::unique_ptr<KernelWorkload> last) {
  if (what.op == "linear") {
    return LinearWorkload::Make(ops, what, settings, std::move(last));
  }
  last.reset();  // two caches at once may be more than there is memory for
  if (HasCache(what.op)) return CacheWorkload::Make(ops, what, settings);
  return std::unique_ptr<KernelWorkload>(
      std::make_unique<RowWorkload>(ops, what, settings.bf16_activations));
}

}  // namespace masu
