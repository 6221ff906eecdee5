// The chat template of whatever a user points at, a GGUF file or a Hugging Face directory.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "text/chat_template.h"

namespace masu {

// In a directory chat_template.jinja and additional_chat_templates/NAME.jinja, else
// chat_template.json, else "chat_template" of tokenizer_config.json, which may be several with
// names; in a GGUF file tokenizer.chat_template and tokenizer.chat_template.NAME.
//
// The one named `name`. If that is empty, transformers' choice: "default", but "tool_use", if there
// is one, for chats with tools. kNotFound: there is no such template; kDataLoss: a file is damaged.
Result<std::unique_ptr<ChatTemplate>> OpenChatTemplate(const std::string& path,
                                                       const std::string& name);
// That of a checkpoint that is open already: a GGUF file is not read again.
Result<std::unique_ptr<ChatTemplate>> OpenChatTemplate(const Checkpoint& checkpoint,
                                                       const std::string& name);

}  // namespace masu
