#include "checkpoint/kv_cache_scheme.h"
#include "checkpoint/plan_config_keys.h"

namespace masu {
namespace {

Error Unknown(const std::string& file, const std::string& what) {
  return MakeError(ErrorCode::kUnimplemented,
                   "{}: quantization_config: {} is not known (known: fp8, compressed-tensors, awq, "
                   "gptq, modelopt, mxfp4); name the format with --weights",
                   file, what);
}

// "int4-g32" and the like, or "fp8", "int8", "nvfp4", "mxfp4".
Result<std::string> FormatName(const std::string& file, uint32_t bits, const std::string& type,
                               uint32_t group) {
  if (bits == 8) return std::string(type == "float" ? "fp8" : "int8");
  if (bits == 4 && type == "float") return std::string(group == 32 ? "mxfp4" : "nvfp4");
  if (bits == 4 && (group == 32 || group == 64 || group == 128)) {
    return fmt::format("int4-g{}", group);
  }
  return Unknown(file, fmt::format("{} bits in groups of {}", bits, group));
}

void AddNames(const nlohmann::json* list, std::vector<std::string>& names) {
  if (list == nullptr || !list->is_array()) return;
  for (const nlohmann::json& name : *list) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
}

// config_groups.*.weights of compressed-tensors; one format for the whole checkpoint.
Result<void> ReadCompressedTensors(const PlanConfigKeys& keys, PlanQuantization& quantization) {
  const nlohmann::json* groups = keys.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty())
    return keys.Missing("config_groups");
  for (const auto& [name, group] : groups->items()) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (weights == group.end() || !weights->is_object()) {
      return Unknown(keys.file(), "config_groups." + name + " without weights");
    }
    const PlanConfigKeys w(*weights, keys.file());
    MASU_ASSIGN_OR_RETURN(const uint32_t bits, w.Required("num_bits", 1, 32));
    MASU_ASSIGN_OR_RETURN(const std::string type, w.String("type", "int"));
    MASU_ASSIGN_OR_RETURN(const uint32_t size, w.WithDefault("group_size", 1, 1 << 20, 0));
    MASU_ASSIGN_OR_RETURN(const bool symmetric, w.Bool("symmetric", true));
    MASU_ASSIGN_OR_RETURN(const std::string format, FormatName(keys.file(), bits, type, size));
    if (!quantization.format.empty() && quantization.format != format) {
      return Unknown(keys.file(), "a mixture of " + quantization.format + " and " + format);
    }
    quantization.format = format;
    quantization.zero_points |= !symmetric;
  }
  AddNames(keys.Find("ignore"), quantization.ignored);
  return {};
}

Result<void> ReadModelOpt(const PlanConfigKeys& keys, PlanQuantization& quantization) {
  MASU_ASSIGN_OR_RETURN(const std::string algorithm, keys.String("quant_algo", ""));
  if (algorithm == "NVFP4") {
    quantization.format = "nvfp4";
  } else if (algorithm == "FP8") {
    quantization.format = "fp8";
  } else {
    return Unknown(keys.file(), "quant_algo '" + algorithm + "'");
  }
  AddNames(keys.Find("ignore"), quantization.ignored);
  AddNames(keys.Find("exclude_modules"), quantization.ignored);
  return {};
}

}  // namespace

Result<void> ReadPlanQuantization(const nlohmann::json& json, const std::string& file,
                                  PlanConfig& config) {
  const KvCacheScheme kv_cache = ReadKvCacheScheme(json);
  config.fp8_kv_cache = kv_cache.fp8;
  config.fp8_kv_scales = kv_cache.static_scales;
  if (QuantizesOnlyKvCache(json)) return {};
  const PlanConfigKeys keys(json, file);
  PlanQuantization quantization;
  MASU_ASSIGN_OR_RETURN(const std::string method, keys.String("quant_method", ""));
  if (method == "fp8") {
    quantization.format = "fp8";
    AddNames(keys.Find("modules_to_not_convert"), quantization.ignored);
    AddNames(keys.Find("ignored_layers"), quantization.ignored);
  } else if (method == "awq" || method == "gptq") {
    MASU_ASSIGN_OR_RETURN(const uint32_t bits, keys.WithDefault("bits", 1, 32, 4));
    MASU_ASSIGN_OR_RETURN(const uint32_t group, keys.WithDefault("group_size", 1, 1 << 20, 128));
    MASU_ASSIGN_OR_RETURN(quantization.format, FormatName(file, bits, "int", group));
    quantization.zero_points = true;
    AddNames(keys.Find("modules_to_not_convert"), quantization.ignored);
  } else if (method == "compressed-tensors") {
    MASU_TRY(ReadCompressedTensors(keys, quantization));
  } else if (method == "modelopt") {
    MASU_TRY(ReadModelOpt(keys, quantization));
  } else if (method == "mxfp4") {
    quantization.format = "mxfp4";
    AddNames(keys.Find("modules_to_not_convert"), quantization.ignored);
  } else {
    return Unknown(file, "quant_method '" + method + "'");
  }
  config.quantization = std::move(quantization);
  return {};
}

}  // namespace masu
