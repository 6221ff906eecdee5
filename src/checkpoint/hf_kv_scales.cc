#include "checkpoint/hf_kv_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "checkpoint/hf_tensor_names.h"

namespace masu {
namespace {

// How an exporter names the two scales of a layer; equal names: one tensor serves both.
struct Naming {
  std::string_view k;
  std::string_view v;
  std::string_view source;
};
constexpr Naming kNamings[] = {
    {"self_attn.k_scale", "self_attn.v_scale", "compressed-tensors"},
    {"self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale", "modelopt"},
    {"self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale", "AutoFP8 or Quark"},
    {"self_attn.qkv_proj.k_scale", "self_attn.qkv_proj.v_scale", "fused projection"},
    {"self_attn.kv_scale", "self_attn.kv_scale", "older name kv_scale"}};

constexpr std::string_view kZeroPoints[] = {"self_attn.k_zero_point", "self_attn.v_zero_point"};

// Queries and attention weights are never quantized here.
constexpr std::string_view kIgnored[] = {
    "self_attn.q_scale",          "self_attn.q_zero_point",
    "self_attn.q_proj.q_scale",   "self_attn.q_proj.output_scale",
    "self_attn.qkv_proj.q_scale", "self_attn.prob_scale",
    "self_attn.prob_output_scale"};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const Naming* NamingOf(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kNamings, [&](const Naming& naming) { return name == naming.k || name == naming.v; });
  return found == std::end(kNamings) ? nullptr : found;
}

bool IsKnown(const CheckpointTensor& tensor, const ModelConfig& config) {
  const auto split = SplitHfLayer(tensor.stored_name);
  if (!split || split->layer >= config.num_layers) return false;
  return NamingOf(split->name) != nullptr || Contains(kZeroPoints, split->name) ||
         Contains(kIgnored, split->name);
}

class Collector {
 public:
  explicit Collector(const ModelConfig& config) : config_(config) {}

  void Add(const CheckpointTensor& tensor, std::vector<std::string>& ignored);
  bool empty() const { return naming_ == nullptr; }
  // The scales, or why they cannot be used.
  Result<KvScales> Scales() const;

 private:
  using Side = std::vector<const CheckpointTensor*>;  // [layers], nullptr: missing

  Result<void> CheckComplete(const Side& side, std::string_view name) const;
  Result<std::vector<float>> Decode(const CheckpointTensor& tensor) const;

  const ModelConfig& config_;
  const Naming* naming_ = nullptr;
  std::string fault_;
  Side k_ = Side(config_.num_layers);
  Side v_ = Side(config_.num_layers);
};

// `tensor` is one that IsKnown.
void Collector::Add(const CheckpointTensor& tensor, std::vector<std::string>& ignored) {
  const auto [layer, name] = *SplitHfLayer(tensor.stored_name);
  if (Contains(kIgnored, name)) return ignored.push_back(tensor.stored_name);
  if (Contains(kZeroPoints, name)) {
    const bool zero =
        std::ranges::all_of(tensor.data, [](std::byte b) { return b == std::byte{0}; });
    if (!zero && fault_.empty()) fault_ = fmt::format("'{}' is not 0", tensor.stored_name);
    return;
  }
  const Naming* naming = NamingOf(name);
  if (naming_ != nullptr && naming_ != naming && fault_.empty()) {
    fault_ = fmt::format("there are scales of two kinds, such as '{}' and '{}'", naming_->k, name);
  }
  naming_ = naming;
  if (name == naming->k) k_[layer] = &tensor;
  if (name == naming->v) v_[layer] = &tensor;
}

Result<void> Collector::CheckComplete(const Side& side, std::string_view name) const {
  constexpr size_t kMaxListed = 8;
  std::vector<size_t> missing;
  for (size_t layer = 0; layer < side.size(); ++layer) {
    if (side[layer] == nullptr) missing.push_back(layer);
  }
  if (missing.empty()) return {};
  if (missing.size() == side.size()) {
    return DataLoss("none of the {} layers has {}", side.size(), name);
  }
  const size_t listed = std::min(missing.size(), kMaxListed);
  std::string layers = fmt::format(
      "{}", fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(listed), ", "));
  if (missing.size() > listed) layers += fmt::format(" and {} more", missing.size() - listed);
  return DataLoss("layer{} {} of {} lack{} {}", missing.size() == 1 ? "" : "s", layers, side.size(),
                  missing.size() == 1 ? "s" : "", name);
}

// [kv_heads], from one value or one per head: shapes [], [1] and [kv_heads, 1, 1] are seen.
Result<std::vector<float>> Collector::Decode(const CheckpointTensor& tensor) const {
  const uint64_t heads = config_.num_kv_heads;
  const uint64_t count = tensor.elements();
  if (count != 1 &&
      (count != heads || std::ranges::find(tensor.shape, heads) == tensor.shape.end())) {
    return DataLoss("'{}' has the shape [{}], expected 1 or {} values", tensor.stored_name,
                    fmt::join(tensor.shape.rbegin(), tensor.shape.rend(), ", "), heads);
  }
  std::vector<float> values(count);
  DequantizeRow(tensor.format, tensor.data, values);
  for (const float value : values) {
    if (!std::isfinite(value) || value <= 0) {
      return DataLoss("'{}' is {}, expected a finite number above 0", tensor.stored_name, value);
    }
  }
  values.resize(heads, values.front());
  return values;
}

Result<KvScales> Collector::Scales() const {
  if (!fault_.empty()) return DataLoss("{}", fault_);
  MASU_TRY(CheckComplete(k_, naming_->k));
  MASU_TRY(CheckComplete(v_, naming_->v));
  KvScales scales;
  bool per_head = false;
  for (const auto& [side, layers] : {std::pair(&k_, &scales.k), std::pair(&v_, &scales.v)}) {
    for (const CheckpointTensor* tensor : *side) {
      MASU_ASSIGN_OR_RETURN(auto values, Decode(*tensor));
      layers->push_back(std::move(values));
      per_head |= tensor->elements() > 1;
    }
  }
  scales.source = fmt::format("{}, {}", naming_->source, per_head ? "per KV head" : "per tensor");
  return scales;
}

}  // namespace

std::vector<CheckpointTensor> TakeKvScaleTensors(std::vector<CheckpointTensor>& tensors,
                                                 const ModelConfig& config) {
  const auto known = std::stable_partition(
      tensors.begin(), tensors.end(),
      [&](const CheckpointTensor& tensor) { return !IsKnown(tensor, config); });
  std::vector<CheckpointTensor> taken(std::make_move_iterator(known),
                                      std::make_move_iterator(tensors.end()));
  tensors.erase(known, tensors.end());
  return taken;
}

HfKvScales ReadHfKvScales(const std::vector<CheckpointTensor>& taken, const KvCacheScheme& scheme,
                          const ModelConfig& config, const std::string& path) {
  HfKvScales read;
  Collector collector(config);
  for (const CheckpointTensor& tensor : taken) collector.Add(tensor, read.ignored);
  std::string fault = scheme.problem;
  if (fault.empty() && !collector.empty()) {
    auto scales = collector.Scales();
    if (scales.ok()) {
      read.scales = std::move(scales).value();
    } else {
      fault = scales.error().message;
    }
  } else if (fault.empty() && scheme.static_scales) {
    fault = fmt::format("{} asks for them and no tensor holds any", scheme.key);
  }
  if (!fault.empty()) {
    read.problem = fmt::format(
        "{}: no usable K/V scales: {}; use --kv-scale dynamic, or export the checkpoint again",
        path, fault);
  }
  return read;
}

}  // namespace masu
