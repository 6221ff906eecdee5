#include "tests/support/tiny_hf_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "checkpoint/ggml_format.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hf_tensor_names.h"
#include "tests/support/tiny_vocabulary.h"

namespace masu {
namespace {

struct FormText {
  KvScaleForm form;
  const char* k;                    // names of the tensors in a layer
  const char* v;                    // empty: one tensor for both
  const char* quantization_config;  // empty: none
};
constexpr FormText kForms[] = {
    {KvScaleForm::kCompressedTensors, "k_scale", "v_scale",
     R"({"quant_method": "compressed-tensors", "config_groups": {}, "format": "dense", "ignore": [],
         "quantization_status": "compressed", "kv_cache_scheme": {"num_bits": 8, "type": "float",
         "strategy": "tensor", "symmetric": true, "dynamic": false, "group_size": null}})"},
    {KvScaleForm::kModelopt, "k_proj.k_scale", "v_proj.v_scale",
     R"({"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8"})"},
    {KvScaleForm::kQuark, "k_proj.output_scale", "v_proj.output_scale",
     R"({"quant_method": "quark", "global_quant_config": {"weight": null, "output_tensors": null},
         "layer_quant_config": {
           "*k_proj": {"weight": null, "output_tensors": {"dtype": "fp8_e4m3", "is_dynamic": false}},
           "*v_proj": {"weight": null, "output_tensors": {"dtype": "fp8_e4m3", "is_dynamic": false}}},
         "export": {"kv_cache_group": ["*k_proj", "*v_proj"]}})"},
    {KvScaleForm::kFused, "qkv_proj.k_scale", "qkv_proj.v_scale", ""},
    {KvScaleForm::kCombined, "kv_scale", "", ""}};

void AddSide(HfDraft& draft, const std::vector<std::vector<float>>& layers, const std::string& name,
             const std::string& dtype) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const uint64_t count = layers[layer].size();
    draft.tensors.push_back(
        {.name = fmt::format("model.layers.{}.self_attn.{}", layer, name),
         .shape = count == 1 ? std::vector<uint64_t>{1} : std::vector<uint64_t>{count, 1, 1},
         .values = layers[layer],
         .dtype = dtype});
  }
}

// GGUF files of arch "llama" hold the rows of a head with the two of a rotated pair side by side,
// Hugging Face has first all first ones, then all second ones.
void SplitPairs(std::vector<float>& rows, uint32_t head_dim, uint32_t columns) {
  std::vector<float> split(rows.size());
  for (size_t row = 0; row < rows.size() / columns; ++row) {
    const size_t head = row / head_dim, in_head = row % head_dim;
    const size_t to = head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
    std::copy_n(&rows[row * columns], columns, &split[to * columns]);
  }
  rows = std::move(split);
}

Result<void> WriteText(const std::string& path, const std::string& text) {
  return WriteFile(path, std::as_bytes(std::span(text)));
}

}  // namespace

void AddKvScales(HfDraft& draft, const KvScaleDraft& scales) {
  if (scales.form == KvScaleForm::kNone) return;
  const auto* form = std::ranges::find(kForms, scales.form, &FormText::form);
  MASU_CHECK(form != std::end(kForms));
  AddSide(draft, scales.k, form->k, scales.dtype);
  if (*form->v != '\0') AddSide(draft, scales.v, form->v, scales.dtype);
  if (*form->quantization_config != '\0') {
    draft.keys["quantization_config"] = form->quantization_config;
  }
}

Result<HfDraft> MakeTinyRandDraft(const TinyRandOptions& options) {
  if (!options.rope_divisors.empty()) {
    return InvalidArgument("config.json has no place for rope divisors; leave them out");
  }
  MASU_ASSIGN_OR_RETURN(const ByteVector gguf, MakeTinyRand(options));
  MASU_ASSIGN_OR_RETURN(const auto file, GgufFile::Parse(gguf, "T-RAND"));
  MASU_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file));
  HfDraft draft(options.sliding_window == 0 ? "llama" : "mistral");
  const auto number = [&](const char* key, auto value) { draft.keys[key] = fmt::to_string(value); };
  number("num_hidden_layers", config.num_layers);
  number("hidden_size", config.hidden_size);
  number("intermediate_size", config.intermediate_size);
  number("vocab_size", config.vocab_size);
  number("max_position_embeddings", config.max_position);
  number("num_attention_heads", config.num_heads);
  number("num_key_value_heads", config.num_kv_heads);
  number("head_dim", config.head_dim);
  number("rms_norm_eps", config.rms_norm_eps);
  number("rope_theta", config.rope_theta);
  number("tie_word_embeddings", config.tied_embeddings);
  if (options.sliding_window != 0) number("sliding_window", options.sliding_window);
  number("bos_token_id", kTinyImStart);
  number("eos_token_id", kTinyImEnd);
  draft.Fill();
  for (SafetensorsDraft& tensor : draft.tensors) {
    const std::string name = CanonicalFromHf(tensor.name);
    const GgufTensor* stored = file->FindTensor(name);
    MASU_CHECK(stored != nullptr);
    DequantizeRow(FormatOf(stored->type), stored->data, tensor.values);
    if (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight")) {
      SplitPairs(tensor.values, config.head_dim, config.hidden_size);
    }
  }
  return draft;
}

Result<void> WriteTinyRandDirectory(const std::string& folder, const TinyRandOptions& options,
                                    const KvScaleDraft& scales) {
  MASU_ASSIGN_OR_RETURN(HfDraft draft, MakeTinyRandDraft(options));
  AddKvScales(draft, scales);
  draft.Write(folder);
  MASU_ASSIGN_OR_RETURN(const auto vocabulary,
                        TinyVocabulary::Create(options.tokenizer_size.value_or(options.vocab)));
  MASU_TRY(WriteText(folder + "/tokenizer.json", vocabulary.TokenizerJson()));
  return WriteText(folder + "/tokenizer_config.json", vocabulary.TokenizerConfigJson());
}

}  // namespace masu
