#include "tests/support/llama_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "checkpoint/ggml_format.h"

namespace masu {
namespace {

using Vector = std::vector<double>;

std::vector<float> Weights(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name + ".weight");
  MASU_CHECK(tensor != nullptr);
  std::vector<float> values(tensor->elements());
  DequantizeRow(FormatOf(tensor->type), tensor->data, values);
  return values;
}

// y[i] = sum over j of w[i, j] x[j]
Vector Multiply(const std::vector<float>& w, const Vector& x) {
  Vector y(w.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
  }
  return y;
}

Vector RmsNorm(const std::vector<float>& weight, const Vector& x, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void Add(const Vector& x, Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

// Rotates each pair (2i, 2i + 1) of every head by position * theta^(-2i / dim) / divisor.
void Rotate(const ModelConfig& config, size_t position, Vector& x) {
  const size_t dim = config.head_dim;
  for (size_t at = 0; at < x.size(); at += 2) {
    const size_t i = at % dim / 2;
    const double divisor =
        config.rope_frequency_divisors.empty() ? 1.0 : config.rope_frequency_divisors[i];
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dim);
    const double angle = static_cast<double>(position) *
                         std::pow(static_cast<double>(config.rope_theta), exponent) / divisor;
    const double a = x[at], b = x[at + 1];
    x[at] = a * std::cos(angle) - b * std::sin(angle);
    x[at + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// One query head over positions 0..t: softmax(q k / sqrt(dim)) v, added to `out` from `to` on.
void AttendHead(size_t dim, const double* q, const std::vector<Vector>& keys,
                const std::vector<Vector>& values, size_t t, size_t kv_at, double* out) {
  Vector scores(t + 1);
  for (size_t s = 0; s <= t; ++s) {
    for (size_t i = 0; i < dim; ++i) scores[s] += q[i] * keys[s][kv_at + i];
    scores[s] /= std::sqrt(static_cast<double>(dim));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (size_t s = 0; s <= t; ++s) {
    for (size_t i = 0; i < dim; ++i) out[i] += scores[s] / total * values[s][kv_at + i];
  }
}

void AddAttention(const GgufFile& file, const ModelConfig& config, const std::string& layer,
                  std::vector<Vector>& states) {
  const auto norm = Weights(file, layer + "attn_norm");
  const auto wq = Weights(file, layer + "attn_q"), wk = Weights(file, layer + "attn_k");
  const auto wv = Weights(file, layer + "attn_v"), wo = Weights(file, layer + "attn_output");
  const size_t dim = config.head_dim;
  const size_t group = config.num_heads / config.num_kv_heads;
  std::vector<Vector> keys, values;
  for (size_t t = 0; t < states.size(); ++t) {
    const Vector x = RmsNorm(norm, states[t], config.rms_norm_eps);
    Vector q = Multiply(wq, x), k = Multiply(wk, x);
    Rotate(config, t, q);
    Rotate(config, t, k);
    keys.push_back(k);
    values.push_back(Multiply(wv, x));
    Vector out(q.size());
    for (size_t head = 0; head < config.num_heads; ++head) {
      AttendHead(dim, &q[head * dim], keys, values, t, head / group * dim, &out[head * dim]);
    }
    Add(Multiply(wo, out), states[t]);
  }
}

void AddFeedForward(const GgufFile& file, const ModelConfig& config, const std::string& layer,
                    std::vector<Vector>& states) {
  const auto norm = Weights(file, layer + "ffn_norm"), gate = Weights(file, layer + "ffn_gate");
  const auto up = Weights(file, layer + "ffn_up"), down = Weights(file, layer + "ffn_down");
  for (Vector& state : states) {
    const Vector x = RmsNorm(norm, state, config.rms_norm_eps);
    Vector inner = Multiply(gate, x);
    const Vector linear = Multiply(up, x);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] = inner[i] / (1 + std::exp(-inner[i])) * linear[i];
    }
    Add(Multiply(down, inner), state);
  }
}

}  // namespace

std::vector<Vector> ReferenceLogits(const GgufFile& file, const ModelConfig& config,
                                    std::span<const TokenId> tokens) {
  const auto embedding = Weights(file, "token_embd");
  std::vector<Vector> states;
  for (const TokenId token : tokens) {
    const auto row = embedding.begin() + static_cast<ptrdiff_t>(token) * config.hidden_size;
    states.emplace_back(row, row + config.hidden_size);
  }
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    AddAttention(file, config, layer, states);
    AddFeedForward(file, config, layer, states);
  }
  const auto norm = Weights(file, "output_norm");
  const auto head = config.tied_embeddings ? embedding : Weights(file, "output");
  std::vector<Vector> logits;
  for (const Vector& state : states) {
    logits.push_back(Multiply(head, RmsNorm(norm, state, config.rms_norm_eps)));
  }
  return logits;
}

}  // namespace masu
