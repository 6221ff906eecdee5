// dump_logprobs MODEL IDS.txt OUT.f32 KV_CACHE_DTYPE ACTIVATION_DTYPE [CHUNK] [logits]
// Teacher-forced log-probabilities (or logits) of every position, float32 [tokens, vocab], for
// comparison with golden data. MODEL needs no tokenizer. CHUNK 1 is decode.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "quality/scoring.h"

namespace {

int Fail(const masu::Error& error) {
  std::fprintf(stderr, "dump_logprobs: %s\n", error.message.c_str());
  return 1;
}

std::vector<float> LogSoftmax(std::span<const float> row) {
  double top = row[0];
  for (const float x : row) top = std::max(top, static_cast<double>(x));
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  std::vector<float> result;
  for (const float x : row) result.push_back(static_cast<float>(x - top - std::log(sum)));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr,
                 "usage: dump_logprobs MODEL IDS.txt OUT.f32 KV_CACHE_DTYPE ACTIVATION_DTYPE "
                 "[CHUNK] [logits]\n");
    return 2;
  }
  std::ifstream ids_file(argv[2]);
  std::vector<masu::TokenId> ids;
  for (masu::TokenId id; ids_file >> id;) ids.push_back(id);
  masu::EngineConfig config;
  config.activation_dtype = argv[5];
  config.isa = masu::Environment::Read().isa;
  auto model = masu::LoadedModel::Load(argv[1], config, nullptr, /*needs_tokenizer=*/false);
  if (!model.ok()) return Fail(model.error());
  auto session = masu::ScoringSession::Create(*model.value(),
                                              {.kv_cache_dtype = argv[4],
                                               .kv_scale = "auto",
                                               .block_size = 16,
                                               .max_tokens = static_cast<uint32_t>(ids.size())});
  if (!session.ok()) return Fail(session.error());
  const size_t chunk = argc > 6 ? std::strtoul(argv[6], nullptr, 10) : session.value()->max_chunk();
  const bool raw = argc > 7 && std::string_view(argv[7]) == "logits";
  std::ofstream out(argv[3], std::ios::binary);
  const size_t vocab = model.value()->config.vocab_size;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const size_t count = std::min(chunk, ids.size() - begin);
    const std::span<const float> logits =
        session.value()->Append(std::span(ids).subspan(begin, count));
    for (size_t r = 0; r < count; ++r) {
      const std::span<const float> row = logits.subspan(r * vocab, vocab);
      const std::vector<float> values =
          raw ? std::vector<float>(row.begin(), row.end()) : LogSoftmax(row);
      out.write(reinterpret_cast<const char*>(values.data()),
                static_cast<std::streamsize>(vocab * sizeof(float)));
    }
  }
  return out.good() ? 0 : 1;
}
