#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/whole_file.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_models.h"

namespace masu {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void Put(const std::string& path, std::string_view text) {
  ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("masu_checkpoint_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  Result<std::unique_ptr<Checkpoint>> Open(const HfDraft& draft) {
    draft.Write(folder_.string());
    return Checkpoint::Open(folder_.string());
  }
  std::string ErrorOf(const HfDraft& draft) {
    const auto checkpoint = Open(draft);
    return checkpoint.ok() ? "no error" : checkpoint.error().message;
  }
  std::string ErrorOf(const std::string& path) {
    const auto checkpoint = Checkpoint::Open(path);
    return checkpoint.ok() ? "no error" : checkpoint.error().message;
  }
  // Writes these tensors as shards: one file for each list, and the index.
  void WriteShards(const HfDraft& draft, const std::vector<std::vector<SafetensorsDraft>>& shards) {
    draft.Write(folder_.string());
    fs::remove(folder_ / "model.safetensors");
    std::string map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      ASSERT_TRUE(WriteFile(Path(name), MakeSafetensors(shards[i])).ok());
      for (const SafetensorsDraft& tensor : shards[i]) {
        map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", tensor.name, name);
      }
    }
    Put(Path("model.safetensors.index.json"), fmt::format("{{\"weight_map\": {{{}}}}}", map));
  }

  fs::path folder_;
};

TEST_F(CheckpointTest, DirectoriesHaveCanonicalNames) {
  HfDraft draft("qwen3");
  draft.Tensor("model.layers.1.self_attn.k_proj.weight").dtype = "BF16";
  const auto checkpoint = Open(draft);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Checkpoint& model = **checkpoint;
  EXPECT_EQ(model.config().name, folder_.filename().string());
  EXPECT_EQ(model.tensors().size(), 3u + 2 * 11);
  EXPECT_EQ(model.tensors().front().name, "token_embd.weight");
  const CheckpointTensor* k = model.Find("blk.1.attn_k.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->stored_name, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(k->format, GgmlFormat::kBF16);
  EXPECT_THAT(k->shape, ElementsAre(16, 8));  // inputs first
  EXPECT_EQ(k->data.size(), 16u * 8 * 2);
  EXPECT_EQ(model.Find("blk.2.attn_k.weight"), nullptr);
  const CheckpointTensor* norm = model.Find("blk.0.attn_q_norm.weight");
  ASSERT_NE(norm, nullptr);
  std::vector<float> values(norm->elements());
  DequantizeRow(norm->format, norm->data, values);
  EXPECT_EQ(values, draft.Tensor(norm->stored_name).values);
  model.Release(*norm);
  DequantizeRow(norm->format, norm->data, values);
  EXPECT_EQ(values, draft.Tensor(norm->stored_name).values);
  EXPECT_EQ(model.gguf(), nullptr);
  EXPECT_THAT(model.ignored(), IsEmpty());
  EXPECT_THAT(model.warnings(), IsEmpty());
}

TEST_F(CheckpointTest, GgufFilesGiveTheSameView) {
  ASSERT_TRUE(WriteFile(Path("tiny.gguf"), MakeTinyRand({}).value()).ok());
  const auto checkpoint = Checkpoint::Open(Path("tiny.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->config().architecture, "llama");
  const CheckpointTensor* tensor = (*checkpoint)->Find("blk.0.attn_q.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->stored_name, tensor->name);
  (*checkpoint)->Release(*tensor);
  EXPECT_NE((*checkpoint)->gguf(), nullptr);
  EXPECT_EQ((*checkpoint)->directory(), nullptr);
}

// Report B605.
TEST_F(CheckpointTest, TiedEmbeddingsWithAndWithoutHead) {
  HfDraft draft;
  draft.keys["tie_word_embeddings"] = "true";
  draft.Fill();
  {
    const auto absent = Open(draft);
    ASSERT_TRUE(absent.ok()) << absent.error().message;
    EXPECT_TRUE((*absent)->config().tied_embeddings);
    EXPECT_EQ((*absent)->Find("output.weight"), nullptr);
  }
  SafetensorsDraft head = draft.Tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  draft.tensors.push_back(head);
  {
    const auto equal = Open(draft);
    ASSERT_TRUE(equal.ok()) << equal.error().message;
    EXPECT_TRUE((*equal)->config().tied_embeddings);
    EXPECT_EQ((*equal)->Find("output.weight"), nullptr);
    EXPECT_THAT((*equal)->ignored(), ElementsAre("lm_head.weight"));
    EXPECT_THAT((*equal)->warnings(), IsEmpty());
  }
  draft.Tensor("lm_head.weight").values[3] += 1;
  {
    const auto different = Open(draft);
    ASSERT_TRUE(different.ok()) << different.error().message;
    EXPECT_FALSE((*different)->config().tied_embeddings);
    EXPECT_NE((*different)->Find("output.weight"), nullptr);
    EXPECT_THAT((*different)->warnings(),
                ElementsAre(HasSubstr("tie_word_embeddings is true, but 'lm_head.weight' differs "
                                      "from 'model.embed_tokens.weight'; the head of the file")));
  }
  draft.keys["tie_word_embeddings"] = "false";
  EXPECT_NE((*Open(draft))->Find("output.weight"), nullptr);
  draft.Remove("lm_head.weight");
  EXPECT_THAT(ErrorOf(draft), HasSubstr("missing: 'lm_head.weight' [16, 10]"));
}

// Report B607.
TEST_F(CheckpointTest, EveryTensorIsAccountedFor) {
  const HfDraft valid("qwen2");
  HfDraft renamed = valid;
  renamed.Tensor("model.layers.0.mlp.up_proj.weight").name = "model.layers.0.mlp.upp_proj.weight";
  const std::string error = ErrorOf(renamed);
  EXPECT_THAT(error, HasSubstr("the tensors do not fit architecture qwen2"));
  EXPECT_THAT(error, HasSubstr("missing: 'model.layers.0.mlp.up_proj.weight' [16, 24]"));
  EXPECT_THAT(error, HasSubstr("unused: 'model.layers.0.mlp.upp_proj.weight' [16, 24]"));
  EXPECT_THAT(error, HasSubstr("may be left over: *.rotary_emb.inv_freq"));

  for (const char* extra :
       {"model.layers.2.mlp.up_proj.weight", "model.layers.00.mlp.up_proj.weight",
        "model.layers.0.self_attn.o_proj.bias", "vision_tower.weight", "",
        "model.layers.0.self_attn.qkv_proj.weight", "blk.0.attn_q.weight"}) {
    HfDraft draft = valid;
    draft.tensors.push_back({.name = extra, .shape = {2}, .values = {1, 2}});
    EXPECT_THAT(ErrorOf(draft), HasSubstr(fmt::format("unused: '{}' [2]", extra)));
  }
  for (const SafetensorsDraft& tensor : valid.tensors) {
    HfDraft draft = valid;
    draft.Remove(tensor.name);
    EXPECT_THAT(ErrorOf(draft), HasSubstr(fmt::format("missing: '{}' [", tensor.name)));
    draft = valid;
    draft.Tensor(tensor.name).shape.insert(draft.Tensor(tensor.name).shape.begin(), 1);
    EXPECT_THAT(ErrorOf(draft), HasSubstr(fmt::format("wrong shape: '{}' [", tensor.name)));
  }
  HfDraft old = valid;
  old.tensors.push_back(
      {.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {2}, .values = {1, 2}});
  const auto checkpoint = Open(old);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_THAT((*checkpoint)->ignored(), ElementsAre(HasSubstr("rotary_emb.inv_freq")));
}

// Report B614: the embedding has the rows that config.json says.
TEST_F(CheckpointTest, VocabularyOfConfigAndEmbeddingAgree) {
  HfDraft draft;
  draft.keys["vocab_size"] = "11";
  EXPECT_THAT(ErrorOf(draft),
              HasSubstr("wrong shape: 'model.embed_tokens.weight' [16, 10], expected [16, 11]"));
}

TEST_F(CheckpointTest, Shards) {
  const HfDraft draft;
  const auto& all = draft.tensors;
  const auto middle = all.begin() + 7;
  const std::vector<SafetensorsDraft> first(all.begin(), middle), second(middle, all.end());
  WriteShards(draft, {second, first});  // the order of shards means nothing
  EXPECT_EQ(ErrorOf(folder_.string()), "no error");

  std::vector<SafetensorsDraft> more = first;
  more.push_back({.name = "stray", .shape = {1}, .values = {1}});
  ASSERT_TRUE(WriteFile(Path("model-00002-of-00002.safetensors"), MakeSafetensors(more)).ok());
  EXPECT_THAT(ErrorOf(folder_.string()),
              HasSubstr("00002.safetensors: holds tensor 'stray', which"));
  more = {first.begin(), first.end() - 1};
  ASSERT_TRUE(WriteFile(Path("model-00002-of-00002.safetensors"), MakeSafetensors(more)).ok());
  EXPECT_THAT(ErrorOf(folder_.string()),
              HasSubstr(fmt::format("there are missing, first '{}'", first.back().name)));
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(
      ErrorOf(folder_.string()),
      HasSubstr("model-00002-of-00002.safetensors: is missing; model.safetensors.index.json "
                "says that it holds 7 tensors"));

  // A tensor twice: two shards may not both hold it.
  WriteShards(draft, {first, second});
  more = second;
  more.push_back(first.front());
  ASSERT_TRUE(WriteFile(Path("model-00002-of-00002.safetensors"), MakeSafetensors(more)).ok());
  EXPECT_THAT(ErrorOf(folder_.string()),
              HasSubstr("holds tensor 'model.embed_tokens.weight', which"));
}

TEST_F(CheckpointTest, BadIndexes) {
  HfDraft().Write(folder_.string());
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(ErrorOf(folder_.string()), HasSubstr("has neither model.safetensors nor model.saf"));
  Put(Path("pytorch_model.bin"), "x");
  EXPECT_THAT(ErrorOf(folder_.string()),
              HasSubstr("but 'pytorch_model.bin'; fetch the safetensors"));
  const std::string index = Path("model.safetensors.index.json");
  for (const auto& [text, cause] :
       {std::pair("{", "is not valid JSON"), std::pair("{}", "has no object 'weight_map'"),
        std::pair(R"({"weight_map": []})", "has no object 'weight_map'"),
        std::pair(R"({"weight_map": {}})", "has no object 'weight_map' with tensors"),
        std::pair(R"({"weight_map": {"a": 1}})", "tensor 'a' is said to be in no string"),
        std::pair(R"({"weight_map": {"a": "../b"}})", "tensor 'a' is said to be in '../b'"),
        std::pair(R"({"weight_map": {"a": "/etc/passwd"}})", "said to be in '/etc/passwd'"),
        std::pair(R"({"weight_map": {"a": ".."}})", "tensor 'a' is said to be in '..'"),
        std::pair(R"({"weight_map": {"a": "b", "a": "c"}})", "key 'a' occurs twice"),
        std::pair(R"({"weight_map": {"a": "config.json"}})", "is not a safetensors file")}) {
    Put(index, text);
    EXPECT_THAT(ErrorOf(folder_.string()), HasSubstr(cause)) << text;
  }
}

TEST_F(CheckpointTest, PathsThatAreNoModel) {
  EXPECT_THAT(ErrorOf(Path("absent")), HasSubstr("no such file; give the path of a .gguf file or"));
  EXPECT_THAT(ErrorOf(folder_.string()), HasSubstr("config.json: is missing; give a Hugging Face"));
  HfDraft().Write(folder_.string());
  EXPECT_THAT(ErrorOf(Path("model.safetensors")), HasSubstr("give the directory that holds it"));
  EXPECT_EQ(ErrorOf(folder_.string() + "//"), "no error");
}

TEST_F(CheckpointTest, TextFilesAreReadOnDemand) {
  HfDraft draft;
  Put(Path("tokenizer.json"), "{\"a\": 1}");
  Put(Path("chat_template.jinja"), "");
  const auto checkpoint = Open(draft);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const ModelDirectory& directory = *(*checkpoint)->directory();
  EXPECT_EQ(directory.Read("tokenizer.json").value(), "{\"a\": 1}");
  EXPECT_EQ(directory.Read("chat_template.jinja").value(), "");
  EXPECT_EQ(directory.Read("tokenizer.model").value(), std::nullopt);
  fs::resize_file(folder_ / "chat_template.jinja", (uint64_t{4} << 20) + 1);
  EXPECT_THAT(directory.Read("chat_template.jinja").error().message,
              HasSubstr("has 4194305 bytes, at most 4194304 make sense"));
  fs::create_directory(folder_ / "tiktoken.model");
  EXPECT_FALSE(directory.Read("tiktoken.model").ok());
}

TEST_F(CheckpointTest, WholeFilesHaveALimit) {
  const auto error = [](const auto& text) { return text.ok() ? "no error" : text.error().message; };
  Put(Path("five"), std::string_view("a\0\nb\xFF", 5));
  EXPECT_EQ(ReadWholeFile(Path("five"), 5).value(), std::string_view("a\0\nb\xFF", 5));
  EXPECT_EQ(error(ReadWholeFile(Path("five"), 4)),
            Path("five") + ": has 5 bytes, at most 4 make sense; the file is damaged");
  EXPECT_EQ(error(ReadWholeFile(Path("absent"), 4)), Path("absent") + ": no such file");
  EXPECT_EQ(error(ReadWholeFile(folder_.string(), 4)),
            folder_.string() + ": is a directory; give a file");
  // Pipes do not say how much they hold.
  for (const std::string_view text : {"abcde", "abcdef"}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
    const auto read = ReadWholeFile(fmt::format("/dev/fd/{}", ends[0]), 5);
    EXPECT_EQ(read.ok(), text.size() == 5);
    if (read.ok()) {
      EXPECT_EQ(*read, text);
    } else {
      EXPECT_THAT(read.error().message, HasSubstr("has more bytes, at most 5 make sense"));
    }
    ::close(ends[0]);
  }
}

// A GGUF file cut into parts, as the split tool names them.
class SplitGguf : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    whole_bytes_ = MakeTinyRand({}).value();
    whole_ = GgufFile::Parse(whole_bytes_, "whole.gguf").value();
  }
  std::string PartPath(int number, int count = 3) const {
    return Path(fmt::format("tiny-{:05}-of-{:05}.gguf", number + 1, count));
  }
  // Part `number` with the tensors from `first` to before `last`; metadata only in part 0.
  ByteVector Part(int number, size_t first, size_t last, int count = 3) {
    GgufWriter writer;
    writer.AddU32("split.no", static_cast<uint32_t>(number));
    writer.AddU32("split.count", static_cast<uint32_t>(count));
    writer.AddI32("split.tensors.count", static_cast<int32_t>(whole_->tensors().size()));
    if (number == 0) {
      writer.AddString("general.architecture", "llama");
      for (const char* key :
           {"block_count", "context_length", "embedding_length", "feed_forward_length",
            "attention.head_count", "attention.head_count_kv"}) {
        const std::string full = std::string("llama.") + key;
        writer.AddU32(full, static_cast<uint32_t>(whole_->GetUnsigned(full).value().value()));
      }
      writer.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    }
    for (size_t i = first; i < last; ++i) {
      const GgufTensor& tensor = whole_->tensors()[i];
      writer.AddRawTensor(tensor.name, tensor.shape, static_cast<uint32_t>(tensor.type),
                          tensor.data);
    }
    return writer.Bytes();
  }
  void WritePart(int number, size_t first, size_t last) {
    ASSERT_TRUE(WriteFile(PartPath(number), Part(number, first, last)).ok());
  }
  void WriteAll() {
    WritePart(0, 0, 0);  // the first part may hold metadata only
    WritePart(1, 0, 5);
    WritePart(2, 5, whole_->tensors().size());
  }

  ByteVector whole_bytes_;
  std::unique_ptr<GgufFile> whole_;
};

TEST_F(SplitGguf, IsReadAsOneFile) {
  WriteAll();
  const auto file = GgufFile::Open(PartPath(0));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->num_parts(), 3u);
  ASSERT_EQ((*file)->tensors().size(), whole_->tensors().size());
  for (const GgufTensor& tensor : whole_->tensors()) {
    const GgufTensor* same = (*file)->FindTensor(tensor.name);
    ASSERT_NE(same, nullptr);
    (*file)->Release(*same);
    EXPECT_TRUE(std::ranges::equal(same->data, tensor.data));
  }
  EXPECT_EQ(ErrorOf(PartPath(0)), "no error");
}

TEST_F(SplitGguf, FaultsAreNamed) {
  WriteAll();
  fs::remove(PartPath(1));
  EXPECT_THAT(ErrorOf(PartPath(0)), HasSubstr("tiny-00002-of-00003.gguf: part 2 of 3 of the split "
                                              "model is missing; fetch it into the folder"));
  EXPECT_THAT(ErrorOf(PartPath(2)),
              HasSubstr("is part 3 of 3 of a split model; give the first one, "
                        "*-00001-of-00003.gguf"));
  WritePart(1, 0, 4);
  EXPECT_THAT(ErrorOf(PartPath(0)), HasSubstr("parts hold 20 tensors, key 'split.tensors.count' "
                                              "says 21"));
  WritePart(1, 0, 6);
  EXPECT_THAT(ErrorOf(PartPath(0)), HasSubstr("occurs in "));
  ASSERT_TRUE(WriteFile(PartPath(1), Part(2, 0, 5)).ok());
  EXPECT_THAT(ErrorOf(PartPath(0)), HasSubstr("says that it is part 3 of 3, expected part 2 of 3"));
  fs::rename(PartPath(0), Path("renamed.gguf"));
  EXPECT_THAT(ErrorOf(Path("renamed.gguf")),
              HasSubstr("its name must end in -00001-of-00003.gguf"));
}

}  // namespace
}  // namespace masu
