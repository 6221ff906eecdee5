// T-RAND of tiny_models.h in Hugging Face form, and K/V scales in every form that checkpoints bring
// them in (report B103). The same options give the model of MakeTinyRand: its logits are the same.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_models.h"

namespace masu {

// TinyRandOptions::v_gain with which V of T-RAND reaches about 2,000, far beyond the 448 of e4m3:
// without a gain the largest of all tokens are about 10 (tiny_hf_models_test.cc).
inline constexpr float kTinyGainForV2000 = 195.0f;

enum class KvScaleForm {
  kNone,
  kCompressedTensors,  // self_attn.k_scale, v_scale, and kv_cache_scheme in config.json
  kModelopt,           // k_proj.k_scale, v_proj.v_scale, and kv_cache_quant_algo in config.json
  kQuark,              // k_proj.output_scale, v_proj.output_scale (AutoFP8's names), Quark's keys
  kFused,              // qkv_proj.k_scale, qkv_proj.v_scale, and no key
  kCombined,           // self_attn.kv_scale for both sides: the older name, and no key
};

// value = code * scale; a scale of amax / 448 is what exporters calibrate for e4m3.
struct KvScaleDraft {
  KvScaleForm form = KvScaleForm::kNone;
  std::vector<std::vector<float>> k;  // [layers][1 or kv_heads]; kCombined writes these alone
  std::vector<std::vector<float>> v;  // [layers][1 or kv_heads]
  std::string dtype = "F32";          // or "BF16", "F16"
};

// Adds the tensors, of shape [1] or [kv_heads, 1, 1], and the key that asks for an fp8 cache.
void AddKvScales(HfDraft& draft, const KvScaleDraft& scales);

// Rope divisors have no place in config.json and are refused.
Result<HfDraft> MakeTinyRandDraft(const TinyRandOptions& options);

// A directory that `masu serve` and LoadedModel::Load take: the draft's files, tokenizer.json and
// tokenizer_config.json with the vocabulary and chat template of the GGUF model. `folder` exists.
Result<void> WriteTinyRandDirectory(const std::string& folder, const TinyRandOptions& options,
                                    const KvScaleDraft& scales = {});

}  // namespace masu
