// What the server answers from: an engine and what belongs to its model. Immutable once given to
// the server; all members may be used from any thread.
#pragma once

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "server/kv_selector.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace masu {

struct ServedModel {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr if there is none
  std::string chat_template_error;                    // why there is none
  GenerationConfig generation;                        // defaults of sampling
  std::string root;                                   // path of the checkpoint, for /v1/models
  // No token stands for more bytes, so longer texts need not be tokenized to be refused. 0:
  // unknown.
  uint64_t longest_token_bytes = 0;
  std::time_t created = std::time(nullptr);
  std::shared_ptr<const KvSelector> kv;  // the server's to set

  static ServedModel From(std::shared_ptr<Engine> engine,
                          const std::shared_ptr<LoadedModel>& loaded) {
    ServedModel served;
    served.engine = std::move(engine);
    served.tokenizer = std::shared_ptr<const Tokenizer>(loaded, loaded->tokenizer.get());
    for (uint32_t id = 0; id < served.tokenizer->vocab_size(); ++id) {
      const uint64_t bytes = served.tokenizer->TokenBytes(static_cast<TokenId>(id)).size();
      served.longest_token_bytes = std::max(served.longest_token_bytes, bytes);
    }
    if (loaded->chat_template) {
      served.chat_template =
          std::shared_ptr<const ChatTemplate>(loaded, loaded->chat_template.get());
    }
    served.chat_template_error = loaded->chat_template_error;
    served.generation = loaded->generation;
    served.root = loaded->path;
    return served;
  }
};

}  // namespace masu
