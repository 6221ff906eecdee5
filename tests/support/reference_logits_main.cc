// reference_logits CHECKPOINT IDS.txt OUT.f32
// Logits of every position, float32 [tokens, vocab], by the reference forward pass of the tests:
// shows that a checkpoint was read as its authors meant, without any engine. For tiny models.
#include <cstdio>
#include <fstream>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tests/support/llama_reference.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: reference_logits CHECKPOINT IDS.txt OUT.f32\n");
    return 2;
  }
  const auto checkpoint = masu::Checkpoint::Open(argv[1]);
  if (!checkpoint.ok()) {
    std::fprintf(stderr, "reference_logits: %s\n", checkpoint.error().message.c_str());
    return 1;
  }
  std::ifstream ids_file(argv[2]);
  std::vector<masu::TokenId> ids;
  for (masu::TokenId id; ids_file >> id;) ids.push_back(id);
  std::ofstream out(argv[3], std::ios::binary);
  for (const auto& row : masu::ReferenceLogits(**checkpoint, ids)) {
    const std::vector<float> narrow(row.begin(), row.end());
    out.write(reinterpret_cast<const char*>(narrow.data()),
              static_cast<std::streamsize>(narrow.size() * sizeof(float)));
  }
  return out.good() ? 0 : 1;
}
