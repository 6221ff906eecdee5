#include "checkpoint/hf_tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace masu {
namespace {

struct Pair {
  std::string_view stored;
  std::string_view canonical;
};
constexpr Pair kOutside[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                             {"model.norm.weight", "output_norm.weight"},
                             {"lm_head.weight", "output.weight"}};
// Before ".weight" or ".bias".
constexpr Pair kInLayer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};
constexpr std::string_view kStoredLayer = "model.layers.";
constexpr std::string_view kCanonicalLayer = "blk.";
constexpr std::string_view kInverseFrequencies = ".rotary_emb.inv_freq";

struct LayerName {
  std::string_view number;
  std::string_view part;
  std::string_view field;  // "weight"
};

// Splits "PREFIX<number>.<part>.<field>"; nullopt if it is not of that form. The number stays text:
// "03" is another name than "3" and must not pass for it.
std::optional<LayerName> SplitLayerName(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t number = name.find('.');
  const size_t field = name.rfind('.');
  if (number == std::string_view::npos || number == 0 || field <= number) return std::nullopt;
  LayerName split{.number = name.substr(0, number),
                  .part = name.substr(number + 1, field - number - 1),
                  .field = name.substr(field + 1)};
  const bool digits =
      std::ranges::all_of(split.number, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (split.number.size() > 1 && split.number.front() == '0')) return std::nullopt;
  if (split.field != "weight" && split.field != "bias") return std::nullopt;
  return split;
}

}  // namespace

std::string CanonicalFromHf(std::string_view stored) {
  const auto* outside = std::ranges::find(kOutside, stored, &Pair::stored);
  if (outside != std::end(kOutside)) return std::string(outside->canonical);
  const auto split = SplitLayerName(stored, kStoredLayer);
  if (!split) return "";
  const auto* part = std::ranges::find(kInLayer, split->part, &Pair::stored);
  if (part == std::end(kInLayer)) return "";
  return fmt::format("{}{}.{}.{}", kCanonicalLayer, split->number, part->canonical, split->field);
}

std::string HfNaming::Stored(std::string_view name) const {
  const auto* outside = std::ranges::find(kOutside, name, &Pair::canonical);
  if (outside != std::end(kOutside)) return std::string(outside->stored);
  const auto split = SplitLayerName(name, kCanonicalLayer);
  if (!split) return std::string(name);
  const auto* part = std::ranges::find(kInLayer, split->part, &Pair::canonical);
  if (part == std::end(kInLayer)) return std::string(name);
  return fmt::format("{}{}.{}.{}", kStoredLayer, split->number, part->stored, split->field);
}

bool HfNaming::MayIgnore(std::string_view stored) const {
  return stored.ends_with(kInverseFrequencies);
}

}  // namespace masu
