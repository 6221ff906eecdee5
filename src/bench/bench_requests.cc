#include "bench/bench_requests.h"

#include <random>

namespace masu {

Request MakeBenchRequest(uint32_t prompt_length, uint32_t max_tokens, uint32_t vocab,
                         uint64_t seed) {
  Request request;
  std::mt19937_64 random(seed);
  request.prompt.reserve(prompt_length);
  for (uint32_t i = 0; i < prompt_length; ++i)
    request.prompt.push_back(static_cast<TokenId>(random() % vocab));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace masu
