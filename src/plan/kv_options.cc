#include "plan/kv_options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace masu {
namespace {

// int4 keeps this many of the first and of the last layers at 8 bits, where errors cost most
// (docs/quality.md).
constexpr uint32_t kInt4WideLayers = 1;

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint32_t> Number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The words of KvDtypeSpec::dtype.
struct Words {
  std::string k;
  std::string v;
  std::string scale = "auto";
  bool plain = false;
  bool rotates = true;
};

Result<Words> ParseWords(const KvDtypeSpec& spec) {
  Words words;
  const std::vector<std::string_view> parts = SplitAt(spec.dtype, ':');
  const std::vector<std::string_view> sides = SplitAt(parts.front(), '/');
  if (sides.size() > 2) {
    return InvalidArgument(
        "kv_cache_dtype '{}': give one encoding, or two as K/V, such as int8/int4", spec.dtype);
  }
  words.k = spec.k.empty() ? std::string(sides.front()) : spec.k;
  words.v = spec.v.empty() ? std::string(sides.back()) : spec.v;
  words.scale = spec.scale;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "plain") {
      words.plain = true;
    } else if (parts[i] == "norotate") {
      words.rotates = false;
    } else if (parts[i] == "dynamic" || parts[i] == "unit" || parts[i] == "checkpoint") {
      words.scale = std::string(parts[i]);
    } else {
      return InvalidArgument(
          "kv_cache_dtype '{}': unknown word '{}'; use dynamic, unit, checkpoint, plain or "
          "norotate",
          spec.dtype, parts[i]);
    }
  }
  return words;
}

Result<KvSide> MakeSide(const std::string& name, const Words& words, bool takes_scale,
                        const KvModelFacts& facts) {
  const Result<KvEncoding> parsed =
      ParseKvEncoding(name, facts.asks_for_fp8 ? std::string("fp8") : facts.wide);
  if (!parsed.ok()) return parsed.error();
  if (facts.latent && *parsed == KvEncoding::kInt4) {
    return MakeError(ErrorCode::kUnimplemented,
                     "Model architecture not supported for kv_cache_dtype='{}': latent attention "
                     "has no int4 cache; use auto, fp8 or int8, and quantized weights instead",
                     name);
  }
  if (*parsed == KvEncoding::kInt4 && facts.head_dim % kKvGroup != 0) {
    return MakeError(
        ErrorCode::kUnimplemented,
        "Model architecture not supported for kv_cache_dtype='{}': its groups of {} do "
        "not divide the head size {}; use auto or int8, and quantized weights instead",
        name, kKvGroup, facts.head_dim);
  }
  std::string scale = takes_scale || *parsed == KvEncoding::kFp8E4M3 ? words.scale : "auto";
  if (*parsed == KvEncoding::kFp8E4M3) {
    if (scale == "auto" && facts.brings_scales) scale = "checkpoint";
    if (scale == "checkpoint" && !facts.brings_scales) {
      return InvalidArgument(
          "--kv-scale checkpoint: this checkpoint has no K/V scales that can be used; use dynamic "
          "(or auto)");
    }
  }
  MASU_ASSIGN_OR_RETURN(KvSide side, MakeKvSide(*parsed, scale));
  side.rotated = side.rotated && words.rotates;
  return side;
}

// 8 bits in place of 4; a page's sides rotate as those of the others do.
KvSide Widened(const KvSide& side) {
  if (side.encoding != KvEncoding::kInt4) return side;
  return {KvEncoding::kInt8, KvScale::kDynamic, side.rotated};
}
KvLayerSides Widened(const KvLayerSides& sides) { return {Widened(sides.k), Widened(sides.v)}; }

// The mode of scales, of the side that has any.
std::string ScaleOf(const KvLayerSides& sides) {
  const std::string k = KvScaleName(sides.k), v = KvScaleName(sides.v);
  return k == "none" ? v : k;
}

void NameOption(const Words& words, KvOption& option) {
  const KvLayerSides& sides = option.sides;
  option.encoding = KvEncodingName(sides.k.encoding);
  if (sides.v.encoding != sides.k.encoding)
    option.encoding += std::string("/") + KvEncodingName(sides.v.encoding);
  if (words.plain) option.encoding += ":plain";
  if (!words.rotates) option.encoding += ":norotate";
  option.scale = ScaleOf(sides);
  option.canonical = option.encoding;
  const bool says =
      sides.k.encoding == KvEncoding::kFp8E4M3 || sides.v.encoding == KvEncoding::kFp8E4M3;
  if (says && option.scale != "dynamic") option.canonical += ":" + option.scale;
}

}  // namespace

uint32_t KvOption::bits() const {
  uint32_t fewest = UINT32_MAX;
  for (const KvLayerSides& of_layer : layers) {
    for (const KvSide& side : {of_layer.k, of_layer.v})
      fewest = std::min(fewest, KvElementBits(side.encoding));
  }
  return fewest;
}

KvModelFacts KvFactsOf(const PlanConfig& config) {
  return {.num_layers = config.num_layers,
          .slides = config.layer_slides,
          .wide = config.dtype == "float16" ? "float16" : "bfloat16",
          .asks_for_fp8 = config.fp8_kv_cache,
          .brings_scales = config.fp8_kv_scales,
          .latent = config.latent.has_value(),
          .head_dim = config.latent ? 0 : config.head_dim};
}

KvModelFacts KvFactsOf(const ModelConfig& config) {
  KvModelFacts facts{.num_layers = config.num_layers,
                     .slides = {},
                     .wide = config.half_dtype,
                     .asks_for_fp8 = config.kv_cache_dtype == "fp8",
                     .head_dim = config.head_dim};
  for (uint32_t i = 0; i < config.num_layers; ++i) facts.slides.push_back(config.WindowOf(i) > 0);
  return facts;
}

Result<std::vector<bool>> ParseSkipLayers(const std::string& list, const KvModelFacts& facts) {
  std::vector<bool> skipped(facts.num_layers);
  if (list.empty()) return skipped;
  const auto bad = [&](std::string_view item, const char* why) {
    return InvalidArgument(
        "--kv-cache-dtype-skip-layers: '{}' {}; use numbers from 0 to {}, ranges such as 2-5, "
        "first:N, last:N or sliding_window, separated by commas",
        item, why, facts.num_layers - 1);
  };
  for (const std::string_view item : SplitAt(list, ',')) {
    if (item == "sliding_window") {
      for (uint32_t i = 0; i < facts.slides.size(); ++i) skipped[i] = skipped[i] || facts.slides[i];
      if (std::ranges::none_of(facts.slides, [](bool slides) { return slides; }))
        return bad(item, "names no layer: this model has no sliding windows");
      continue;
    }
    uint32_t begin = 0, end = 0;  // layers [begin, end)
    const size_t colon = item.find(':'), dash = item.find('-');
    if (colon != std::string_view::npos) {
      const std::string_view which = item.substr(0, colon);
      const auto count = Number(item.substr(colon + 1));
      if (!count || (which != "first" && which != "last")) return bad(item, "is not understood");
      if (*count > facts.num_layers) return bad(item, "is more than the model has");
      begin = which == "first" ? 0 : facts.num_layers - *count;
      end = begin + *count;
    } else {
      const auto first = Number(item.substr(0, dash));
      const auto last = dash == std::string_view::npos ? first : Number(item.substr(dash + 1));
      if (!first || !last || *first > *last) return bad(item, "is not understood");
      if (*last >= facts.num_layers) return bad(item, "is beyond the last layer");
      begin = *first;
      end = *last + 1;
    }
    std::fill(skipped.begin() + begin, skipped.begin() + end, true);
  }
  return skipped;
}

Result<KvOption> MakeKvOption(const KvDtypeSpec& spec, const KvModelFacts& facts) {
  MASU_ASSIGN_OR_RETURN(const Words words, ParseWords(spec));
  const auto is_fp8 = [](const std::string& name) { return name.starts_with("fp8"); };
  // A scale mode is for the side that has scales of its own choice; alone it must fit both.
  const bool takes = !is_fp8(words.k) && !is_fp8(words.v);
  KvOption option;
  option.name = spec.dtype;
  MASU_ASSIGN_OR_RETURN(option.sides.k, MakeSide(words.k, words, takes, facts));
  MASU_ASSIGN_OR_RETURN(option.sides.v, MakeSide(words.v, words, takes, facts));
  if (facts.latent && option.sides.k != option.sides.v) {
    return MakeError(ErrorCode::kUnimplemented,
                     "Model architecture not supported for kv_cache_dtype='{}': latent attention "
                     "has one cache for K and V; give one encoding",
                     spec.dtype);
  }
  NameOption(words, option);
  MASU_ASSIGN_OR_RETURN(const std::vector<bool> skipped, ParseSkipLayers(spec.skip_layers, facts));
  MASU_ASSIGN_OR_RETURN(const KvEncoding wide, ParseKvEncoding(facts.wide, ""));
  const KvSide wide_side{wide, KvScale::kNone, false};
  for (uint32_t i = 0; i < facts.num_layers; ++i) {
    const bool at_an_end = i < kInt4WideLayers || i + kInt4WideLayers >= facts.num_layers;
    KvLayerSides sides = at_an_end && !words.plain ? Widened(option.sides) : option.sides;
    if (skipped[i]) sides = {wide_side, wide_side};
    option.layers.push_back(std::move(sides));
  }
  if (words.plain) return option;
  for (const KvLayerSides& sides : option.layers) option.first_page.push_back(Widened(sides));
  if (option.first_page == option.layers) option.first_page.clear();
  return option;
}

Result<std::vector<KvOption>> MakeKvOptions(const std::vector<std::string>& names,
                                            const KvDtypeSpec& base, const KvModelFacts& facts) {
  // Checks the scale's mode also where no encoding would.
  const Result<KvOption> fp8 = MakeKvOption({.dtype = "fp8", .scale = base.scale}, facts);
  if (!fp8.ok()) return fp8.error();
  std::vector<KvOption> options;
  const auto with = [&](const std::string& name) {
    KvDtypeSpec spec = base;
    spec.dtype = name;
    return MakeKvOption(spec, facts);
  };
  for (const std::string& name : names) {
    if (name != "all") {
      MASU_ASSIGN_OR_RETURN(KvOption option, with(name));
      options.push_back(std::move(option));
      continue;
    }
    // Those that do not apply to this model, or that the scale mode does not apply to, are left
    // out.
    for (const std::string& candidate :
         {facts.wide, std::string("fp8:checkpoint"), std::string("fp8:dynamic"),
          std::string("fp8:unit"), std::string("fp8_e5m2"), std::string("int8"),
          std::string("int8/int4"), std::string("int4")}) {
      KvDtypeSpec spec = base;
      spec.dtype = candidate;
      spec.scale = "auto";
      Result<KvOption> option = MakeKvOption(spec, facts);
      if (!option.ok()) continue;
      option->name = candidate.substr(0, candidate.find(':'));
      if (base.scale == "auto" || option->scale == "none" || option->scale == base.scale)
        options.push_back(std::move(option).value());
    }
  }
  return options;
}

}  // namespace masu
