// The table "reference numbers for quantized K with a constant offset" that came with bug report
// B101, computed again with our own formats: one head of 32, 128 positions, K of N(0, 1) with a
// constant on the two channels of the slowest rotary pair, exact V; mean KL of the rows of
// attention against exact K. What is compared is the order of methods, for pairs more than twice
// apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "quant/kv_encoding.h"

namespace masu {
namespace {

constexpr uint32_t kDim = 32;
constexpr uint32_t kPositions = 128;
using Matrix = std::vector<std::vector<float>>;  // [positions][kDim]

Matrix Rotated(const Matrix& rows) {
  Matrix result = rows;
  for (uint32_t p = 0; p < rows.size(); ++p) {
    for (uint32_t i = 0; i < kDim / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / kDim);
      const double a = rows[p][i], b = rows[p][kDim / 2 + i];
      result[p][i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      result[p][kDim / 2 + i] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
  return result;
}

// Symmetric integers of `levels` steps to each side, one scale for all that `values` holds.
void RoundTo(float levels, const std::vector<float*>& values) {
  float absmax = 0;
  for (const float* value : values) absmax = std::max(absmax, std::fabs(*value));
  const float scale = absmax / levels;
  for (float* value : values) *value = std::nearbyint(*value / scale) * scale;
}

Matrix PerToken(Matrix k, float levels) {
  for (auto& row : k) {
    std::vector<float*> values;
    for (float& value : row) values.push_back(&value);
    RoundTo(levels, values);
  }
  return k;
}

Matrix PerTensor(Matrix k, float levels) {
  std::vector<float*> values;
  for (auto& row : k) {
    for (float& value : row) values.push_back(&value);
  }
  RoundTo(levels, values);
  return k;
}

Matrix PerChannel(Matrix k, float levels) {
  for (uint32_t d = 0; d < kDim; ++d) {
    std::vector<float*> values;
    for (auto& row : k) values.push_back(&row[d]);
    RoundTo(levels, values);
  }
  return k;
}

Matrix Stored(Matrix k, KvSide side, float static_scale = 1.0f) {
  for (auto& row : k)
    row = DecodeKvVector(EncodeKvVector(row, side, static_scale), side, static_scale);
  return k;
}

// e4m3 with the one scale that the largest value of all asks for, as calibration finds it.
Matrix CalibratedFp8(const Matrix& k) {
  float absmax = 0;
  for (const auto& row : k) {
    for (const float value : row) absmax = std::max(absmax, std::fabs(value));
  }
  return Stored(k, {KvEncoding::kFp8E4M3, KvScale::kStatic, false}, absmax / 448);
}

// KL(exact || stored) of each row's softmax over the positions up to its own, averaged.
double AttentionKl(const Matrix& q, const Matrix& exact, const Matrix& stored) {
  double sum = 0;
  for (uint32_t p = 0; p < kPositions; ++p) {
    std::vector<double> a, b;
    for (uint32_t t = 0; t <= p; ++t) {
      double x = 0, y = 0;
      for (uint32_t d = 0; d < kDim; ++d) {
        x += static_cast<double>(q[p][d]) * exact[t][d];
        y += static_cast<double>(q[p][d]) * stored[t][d];
      }
      a.push_back(x / std::sqrt(kDim));
      b.push_back(y / std::sqrt(kDim));
    }
    const auto log_sum = [](const std::vector<double>& x) {
      const double top = *std::max_element(x.begin(), x.end());
      double total = 0;
      for (const double v : x) total += std::exp(v - top);
      return top + std::log(total);
    };
    const double na = log_sum(a), nb = log_sum(b);
    for (uint32_t t = 0; t <= p; ++t) sum += std::exp(a[t] - na) * ((a[t] - na) - (b[t] - nb));
  }
  return sum / kPositions;
}

constexpr float kSpikes[] = {0, 20, 100, 600};
struct Method {
  const char* name;
  double reference[4];  // by spike
  // The K that attention reads, of K and of its constant, both before the rotary embedding.
  std::function<Matrix(const Matrix& k, const Matrix& constant)> stored;
};

Matrix Plus(Matrix a, const Matrix& b, float sign) {
  for (size_t p = 0; p < a.size(); ++p) {
    for (uint32_t d = 0; d < kDim; ++d) a[p][d] += sign * b[p][d];
  }
  return a;
}

template <typename Encode>
auto Directly(const Encode& encode) {
  return [encode](const Matrix& k, const Matrix&) { return encode(Rotated(k)); };
}
// As masu does: the constant is not in what is encoded, and its embedding is added when it is read.
template <typename Encode>
auto WithoutConstant(const Encode& encode) {
  return [encode](const Matrix& k, const Matrix& constant) {
    return Plus(encode(Rotated(Plus(k, constant, -1))), Rotated(constant), 1);
  };
}

std::vector<Method> Methods() {
  const KvSide unit{KvEncoding::kFp8E4M3, KvScale::kNone, false};
  const KvSide e5m2{KvEncoding::kFp8E5M2, KvScale::kNone, false};
  const KvSide int8{KvEncoding::kInt8, KvScale::kDynamic, false};
  const auto stored = [](KvSide side) {
    return [side](const Matrix& k) { return Stored(k, side); };
  };
  const auto int4 = [](const Matrix& k) { return PerToken(k, 7); };
  return {
      {"int8 per token", {0, 0.0010, 0.023, 0.457}, Directly(stored(int8))},
      {"int8 per tensor", {0, 0.0013, 0.026, 0.483}, Directly([](const Matrix& k) {
         return PerTensor(k, 127);
       })},
      {"int8 per channel", {0, 0.0001, 0.0016, 0.048}, Directly([](const Matrix& k) {
         return PerChannel(k, 127);
       })},
      {"int8, offset removed", {0, 0, 0, 0}, WithoutConstant(stored(int8))},
      {"int4 per token", {0.0045, 0.290, 0.448, 0.715}, Directly(int4)},
      {"int4 per channel", {0.0065, 0.030, 0.041, 0.144}, Directly([](const Matrix& k) {
         return PerChannel(k, 7);
       })},
      {"int4, offset removed", {0.0045, 0.0045, 0.0043, 0.0044}, WithoutConstant(int4)},
      {"fp8, scale 1", {0.0003, 0.0098, 0.216, 0.138}, Directly(stored(unit))},
      {"fp8, amax scale", {0.0004, 0.0070, 0.173, 0.758}, Directly(CalibratedFp8)},
      {"fp8 e5m2", {0.0014, 0.029, 0.052, 0.139}, Directly(stored(e5m2))},
      {"fp8, offset removed", {0.0003, 0.0004, 0.0003, 0.0004}, WithoutConstant(CalibratedFp8)},
  };
}

TEST(KeyBiasTable, OrderOfMethodsIsThatOfTheReference) {
  constexpr int kDraws = 10;
  const std::vector<Method> methods = Methods();
  for (int s = 0; s < 4; ++s) {
    std::vector<double> kl(methods.size());
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    for (int draw = 0; draw < kDraws; ++draw) {
      Matrix q(kPositions, std::vector<float>(kDim)), k = q, constant = q;
      for (auto* rows : {&q, &k}) {
        for (auto& row : *rows) {
          for (float& value : row) value = normal(random);
        }
      }
      for (auto& row : constant) row[kDim / 2 - 1] = row[kDim - 1] = kSpikes[s];
      k = Plus(k, constant, 1);
      q = Rotated(q);
      const Matrix exact = Rotated(k);
      for (size_t m = 0; m < methods.size(); ++m)
        kl[m] += AttentionKl(q, exact, methods[m].stored(k, constant)) / kDraws;
    }
    for (size_t a = 0; a < methods.size(); ++a) {
      for (size_t b = 0; b < methods.size(); ++b) {
        // The table has four digits: 0.0000 is anything below half of the last one.
        const double low = std::max(methods[a].reference[s], 0.00005);
        if (!(methods[b].reference[s] > 2 * low)) continue;
        EXPECT_LT(kl[a], kl[b]) << methods[a].name << " and " << methods[b].name << " at "
                                << kSpikes[s];
      }
    }
    // And the size of one entry of each kind, so that the simulation is the table's.
    for (size_t m = 0; m < methods.size(); ++m) {
      if (methods[m].reference[s] < 0.001) continue;
      EXPECT_GT(kl[m], methods[m].reference[s] / 2) << methods[m].name << " at " << kSpikes[s];
      EXPECT_LT(kl[m], methods[m].reference[s] * 2) << methods[m].name << " at " << kSpikes[s];
    }
  }
}

}  // namespace
}  // namespace masu
