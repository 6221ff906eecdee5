#include "checkpoint/hf_tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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

// Splits "PREFIX<number>.<name>". "03" is another name than "3" and must not pass for it.
std::optional<HfLayerTensor> SplitLayer(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  HfLayerTensor split;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), split.layer);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || (digits > 1 && text.front() == '0')) return std::nullopt;
  if (digits == text.size() || text[digits] != '.') return std::nullopt;
  split.name = text.substr(digits + 1);
  return split;
}

// "self_attn.q_proj.weight" -> "attn_q.weight" or back; "" if it is no part of a layer.
std::string Translate(std::string_view name, std::string_view Pair::*from,
                      std::string_view Pair::*to) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view field = name.substr(dot + 1);
  if (field != "weight" && field != "bias") return "";
  const auto* part = std::ranges::find(kInLayer, name.substr(0, dot), from);
  return part == std::end(kInLayer) ? "" : fmt::format("{}.{}", part->*to, field);
}

}  // namespace

std::optional<HfLayerTensor> SplitHfLayer(std::string_view stored) {
  return SplitLayer(stored, kStoredLayer);
}

std::string CanonicalFromHf(std::string_view stored) {
  const auto* outside = std::ranges::find(kOutside, stored, &Pair::stored);
  if (outside != std::end(kOutside)) return std::string(outside->canonical);
  const auto split = SplitLayer(stored, kStoredLayer);
  const std::string name = split ? Translate(split->name, &Pair::stored, &Pair::canonical) : "";
  return name.empty() ? "" : fmt::format("{}{}.{}", kCanonicalLayer, split->layer, name);
}

std::string HfNaming::Stored(std::string_view canonical) const {
  const auto* outside = std::ranges::find(kOutside, canonical, &Pair::canonical);
  if (outside != std::end(kOutside)) return std::string(outside->stored);
  const auto split = SplitLayer(canonical, kCanonicalLayer);
  const std::string name = split ? Translate(split->name, &Pair::canonical, &Pair::stored) : "";
  return name.empty() ? std::string(canonical)
                      : fmt::format("{}{}.{}", kStoredLayer, split->layer, name);
}

bool HfNaming::MayIgnore(std::string_view stored) const {
  return stored.ends_with(kInverseFrequencies);
}

}  // namespace masu
