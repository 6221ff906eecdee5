// dump_logprobs MODEL.gguf IDS.txt OUT.f32 KV_CACHE_DTYPE ACTIVATION_DTYPE [CHUNK]
// Teacher-forced log-probabilities of every position, float32 [tokens, vocab], for comparison with
// golden data.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/environment.h"
#include "quality/scoring.h"

namespace {

int Fail(const masu::Error& error) {
  std::fprintf(stderr, "dump_logprobs: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr,
                 "usage: dump_logprobs MODEL.gguf IDS.txt OUT.f32 KV_CACHE_DTYPE ACTIVATION_DTYPE "
                 "[CHUNK]\n");
    return 2;
  }
  std::ifstream ids_file(argv[2]);
  std::vector<masu::TokenId> ids;
  for (masu::TokenId id; ids_file >> id;) ids.push_back(id);
  masu::EngineConfig config;
  config.activation_dtype = argv[5];
  config.isa = masu::Environment::Read().isa;
  auto model = masu::LoadedModel::Load(argv[1], config, nullptr);
  if (!model.ok()) return Fail(model.error());
  auto session = masu::ScoringSession::Create(*model.value(),
                                              {.kv_cache_dtype = argv[4],
                                               .kv_scale = "auto",
                                               .block_size = 16,
                                               .max_tokens = static_cast<uint32_t>(ids.size())});
  if (!session.ok()) return Fail(session.error());
  const size_t chunk = argc > 6 ? std::strtoul(argv[6], nullptr, 10) : session.value()->max_chunk();
  std::ofstream out(argv[3], std::ios::binary);
  const size_t vocab = model.value()->config.vocab_size;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const size_t count = std::min(chunk, ids.size() - begin);
    const std::span<const float> logits =
        session.value()->Append(std::span(ids).subspan(begin, count));
    for (size_t r = 0; r < count; ++r) {
      const std::span<const float> row = logits.subspan(r * vocab, vocab);
      double top = row[0];
      for (const float x : row) top = std::max(top, static_cast<double>(x));
      double sum = 0;
      for (const float x : row) sum += std::exp(x - top);
      std::vector<float> logprobs(vocab);
      for (size_t i = 0; i < vocab; ++i)
        logprobs[i] = static_cast<float>(row[i] - top - std::log(sum));
      out.write(reinterpret_cast<const char*>(logprobs.data()),
                static_cast<std::streamsize>(vocab * sizeof(float)));
    }
  }
  return out.good() ? 0 : 1;
}
