#include "tests/support/llama_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "checkpoint/ggml_format.h"

namespace masu {
namespace {

using Vector = std::vector<double>;

// The values of a tensor by its canonical name; empty if there is none.
using Lookup = std::function<std::vector<float>(const std::string& name)>;

struct Source {
  const ModelConfig& config;
  Lookup find;
  Vector frequencies = {};  // radians per position of each pair

  std::vector<float> Weight(const std::string& name) const {
    std::vector<float> values = find(name + ".weight");
    MASU_CHECK(!values.empty());
    return values;
  }
};

template <typename Tensor>
std::vector<float> Decode(const Tensor* tensor, GgmlFormat format) {
  std::vector<float> values(tensor->elements());
  DequantizeRow(format, tensor->data, values);
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

// The layer called `name` of x: its matrix, and its bias if there is one.
Vector Project(const Source& source, const std::string& name, const Vector& x) {
  Vector y = Multiply(source.Weight(name), x);
  const std::vector<float> bias = source.find(name + ".bias");
  for (size_t i = 0; i < bias.size(); ++i) y[i] += bias[i];
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

// Radians per position of pair i. The scalings are those of model/rope.h, in double.
double Frequency(const ModelConfig& config, size_t i) {
  const RopeScaling& scaling = config.rope_scaling;
  const double dim = config.head_dim, theta = config.rope_theta, pi = std::acos(-1.0);
  const double original = scaling.original_max_position;
  const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
  const double stretched = plain / scaling.factor;
  if (!config.rope_frequency_divisors.empty()) return plain / config.rope_frequency_divisors[i];
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return plain;
    case RopeScaling::Kind::kLinear:
      return stretched;
    case RopeScaling::Kind::kLlama3: {
      const double turns = original * plain / (2 * pi);  // within the original context
      const double s =
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      return s > 1 ? plain : s < 0 ? stretched : (1 - s) * stretched + s * plain;
    }
    case RopeScaling::Kind::kYarn: {
      const auto dimension = [&](double turns) {
        return dim * std::log(original / (turns * 2 * pi)) / (2 * std::log(theta));
      };
      const double low = std::max(std::floor(dimension(scaling.beta_fast)), 0.0);
      const double high = std::min(std::ceil(dimension(scaling.beta_slow)), dim - 1);
      const double place = (static_cast<double>(i) - low) / std::max(high - low, 0.001);
      const double r = std::min(std::max(place, 0.0), 1.0);
      return stretched * r + plain * (1 - r);
    }
  }
  return plain;
}

// Rotates the pairs of every head by position * frequency.
void Rotate(const Source& source, size_t position, Vector& x) {
  const ModelConfig& config = source.config;
  const size_t dim = config.head_dim, half = dim / 2;
  const bool adjacent = config.rope_pairing == RopePairing::kAdjacent;
  for (size_t head = 0; head < x.size(); head += dim) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * source.frequencies[i];
      double& first = x[head + (adjacent ? 2 * i : i)];
      double& second = x[head + (adjacent ? 2 * i + 1 : i + half)];
      const double a = first, b = second, factor = config.rope_scaling.attention_factor;
      first = (a * std::cos(angle) - b * std::sin(angle)) * factor;
      second = (a * std::sin(angle) + b * std::cos(angle)) * factor;
    }
  }
}

// Norms of each head, where the family has them.
void NormHeads(const Source& source, const std::string& name, Vector& x) {
  if (!source.config.qk_norm) return;
  const std::vector<float> weight = source.Weight(name);
  for (size_t head = 0; head < x.size(); head += weight.size()) {
    const auto first = x.begin() + static_cast<ptrdiff_t>(head);
    const Vector normed =
        RmsNorm(weight, Vector(first, first + static_cast<ptrdiff_t>(weight.size())),
                source.config.rms_norm_eps);
    std::copy(normed.begin(), normed.end(), first);
  }
}

// One query head over positions first..t: softmax(q k / sqrt(dim)) v, added to `out`.
void AttendHead(size_t dim, const double* q, const std::vector<Vector>& keys,
                const std::vector<Vector>& values, size_t first, size_t t, size_t kv_at,
                double* out) {
  Vector scores(t + 1, -std::numeric_limits<double>::infinity());
  for (size_t s = first; s <= t; ++s) {
    scores[s] = 0;
    for (size_t i = 0; i < dim; ++i) scores[s] += q[i] * keys[s][kv_at + i];
    scores[s] /= std::sqrt(static_cast<double>(dim));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (size_t s = first; s <= t; ++s) {
    for (size_t i = 0; i < dim; ++i) out[i] += scores[s] / total * values[s][kv_at + i];
  }
}

void AddAttention(const Source& source, uint32_t index, std::vector<Vector>& states) {
  const ModelConfig& config = source.config;
  const std::string layer = fmt::format("blk.{}.", index);
  const auto norm = source.Weight(layer + "attn_norm");
  const size_t dim = config.head_dim;
  const size_t group = config.num_heads / config.num_kv_heads;
  std::vector<Vector> queries, keys, values;
  for (size_t t = 0; t < states.size(); ++t) {
    const Vector x = RmsNorm(norm, states[t], config.rms_norm_eps);
    Vector q = Project(source, layer + "attn_q", x), k = Project(source, layer + "attn_k", x);
    NormHeads(source, layer + "attn_q_norm", q);
    NormHeads(source, layer + "attn_k_norm", k);
    Rotate(source, t, q);
    Rotate(source, t, k);
    queries.push_back(std::move(q));
    keys.push_back(std::move(k));
    values.push_back(Project(source, layer + "attn_v", x));
  }
  const size_t window = config.WindowOf(index);
  for (size_t t = 0; t < states.size(); ++t) {
    const size_t first = window != 0 && t + 1 > window ? t + 1 - window : 0;
    Vector out(queries[t].size());
    for (size_t head = 0; head < config.num_heads; ++head) {
      AttendHead(dim, &queries[t][head * dim], keys, values, first, t, head / group * dim,
                 &out[head * dim]);
    }
    Add(Project(source, layer + "attn_output", out), states[t]);
  }
}

void AddFeedForward(const Source& source, uint32_t index, std::vector<Vector>& states) {
  const std::string layer = fmt::format("blk.{}.", index);
  const auto norm = source.Weight(layer + "ffn_norm");
  for (Vector& state : states) {
    const Vector x = RmsNorm(norm, state, source.config.rms_norm_eps);
    Vector inner = Project(source, layer + "ffn_gate", x);
    const Vector linear = Project(source, layer + "ffn_up", x);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] = inner[i] / (1 + std::exp(-inner[i])) * linear[i];
    }
    Add(Project(source, layer + "ffn_down", inner), state);
  }
}

std::vector<Vector> Logits(Source source, std::span<const TokenId> tokens) {
  const ModelConfig& config = source.config;
  for (size_t i = 0; i < config.head_dim / 2; ++i) {
    source.frequencies.push_back(Frequency(config, i));
  }
  const auto embedding = source.Weight("token_embd");
  std::vector<Vector> states;
  for (const TokenId token : tokens) {
    const auto row = embedding.begin() + static_cast<ptrdiff_t>(token) * config.hidden_size;
    states.emplace_back(row, row + config.hidden_size);
  }
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    AddAttention(source, i, states);
    AddFeedForward(source, i, states);
  }
  const auto norm = source.Weight("output_norm");
  const auto head = config.tied_embeddings ? embedding : source.Weight("output");
  std::vector<Vector> logits;
  for (const Vector& state : states) {
    logits.push_back(Multiply(head, RmsNorm(norm, state, config.rms_norm_eps)));
  }
  return logits;
}

}  // namespace

std::vector<Vector> ReferenceLogits(const GgufFile& file, const ModelConfig& config,
                                    std::span<const TokenId> tokens) {
  const auto find = [&](const std::string& name) {
    const GgufTensor* tensor = file.FindTensor(name);
    return tensor == nullptr ? std::vector<float>() : Decode(tensor, FormatOf(tensor->type));
  };
  return Logits({config, find}, tokens);
}

std::vector<Vector> ReferenceLogits(const Checkpoint& checkpoint, std::span<const TokenId> tokens) {
  const auto find = [&](const std::string& name) {
    const CheckpointTensor* tensor = checkpoint.Find(name);
    return tensor == nullptr ? std::vector<float>() : Decode(tensor, tensor->format);
  };
  return Logits({checkpoint.config(), find}, tokens);
}

}  // namespace masu
