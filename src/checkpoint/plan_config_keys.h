// Reading of keys of a config.json for the planner, with the errors that a user gets. null counts
// as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/plan_config.h"

namespace masu {

inline constexpr uint64_t kMaxPlanLayers = 4096;
inline constexpr uint64_t kMaxPlanWidth = 1 << 22;

class PlanConfigKeys {
 public:
  // `object` must outlive this.
  PlanConfigKeys(const nlohmann::json& object, std::string file)
      : object_(object), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const nlohmann::json* Find(const std::string& key) const;  // nullptr if absent or null
  Result<std::optional<uint32_t>> Optional(const std::string& key, uint64_t min,
                                           uint64_t max) const;
  Result<uint32_t> Required(const std::string& key, uint64_t min, uint64_t max) const;
  Result<uint32_t> WithDefault(const std::string& key, uint64_t min, uint64_t max,
                               uint32_t fallback) const;
  Result<bool> Bool(const std::string& key, bool fallback) const;
  Result<std::string> String(const std::string& key, const std::string& fallback) const;
  // A list of names, one per layer: true where it is `name`, which must be one of the two.
  Result<std::optional<std::vector<bool>>> Layers(const std::string& key, const std::string& name,
                                                  const std::string& other, size_t count) const;

  Error Missing(const std::string& key) const;
  Error Wrong(const std::string& key, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string file_;
};

// plan_vision.cc: MoonViT of Kimi K2.5 (its keys begin with vt_ in some files) and SigLIP of
// Gemma 3.
Result<PlanVision> ReadPlanVision(const nlohmann::json& json, const std::string& wrapper,
                                  const std::string& file);

// plan_quantization.cc: fills quantization, unless only the cache is quantized, fp8_kv_cache and
// fp8_kv_scales from `quantization_config`.
Result<void> ReadPlanQuantization(const nlohmann::json& quantization, const std::string& file,
                                  PlanConfig& config);

}  // namespace masu
