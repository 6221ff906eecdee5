// K/V scales that Hugging Face directories bring (report B103): every form is found, and a set that
// is not whole is never used, and never passed over in silence.
#include "checkpoint/hf_kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_hf_models.h"

namespace masu {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Scales = std::vector<std::vector<float>>;

constexpr KvScaleForm kForms[] = {KvScaleForm::kCompressedTensors, KvScaleForm::kModelopt,
                                  KvScaleForm::kQuark, KvScaleForm::kFused, KvScaleForm::kCombined};
constexpr const char* kKScale = "model.layers.0.self_attn.k_scale";
constexpr const char* kVScale = "model.layers.1.self_attn.v_scale";

class HfKvScalesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("masu_kv_scales_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<Checkpoint> Open(const HfDraft& draft) {
    draft.Write(folder_.string());
    auto checkpoint = Checkpoint::Open(folder_.string());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    return checkpoint.ok() ? std::move(checkpoint).value() : nullptr;
  }
  // A model of 2 layers and 2 KV heads with scales in compressed-tensors' form.
  static HfDraft Draft(Scales k = {{0.5f}, {0.25f}}, Scales v = {{2.0f}, {4.0f}}) {
    HfDraft draft;
    AddKvScales(draft,
                {.form = KvScaleForm::kCompressedTensors, .k = std::move(k), .v = std::move(v)});
    return draft;
  }
  // The checkpoint opens without scales, and says why in its one warning.
  std::string ProblemOf(const HfDraft& draft) {
    const auto checkpoint = Open(draft);
    if (checkpoint == nullptr) return "not opened";
    EXPECT_EQ(checkpoint->kv_scales(), nullptr);
    const std::string& problem = checkpoint->kv_scales_problem();
    EXPECT_THAT(checkpoint->warnings(), ElementsAre(problem));
    EXPECT_THAT(problem, AllOf(StartsWith(folder_.string() + ": no usable K/V scales: "),
                               Not(HasSubstr("\n"))));
    return problem;
  }
  void PutModelopt(const std::string& text) {
    ASSERT_TRUE(
        WriteFile((folder_ / "hf_quant_config.json").string(), std::as_bytes(std::span(text)))
            .ok());
  }

  fs::path folder_;
};

TEST_F(HfKvScalesTest, EveryFormIsFound) {
  for (const KvScaleForm form : kForms) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
      HfDraft draft;
      AddKvScales(
          draft,
          {.form = form, .k = {{0.5f}, {0.0078125f}}, .v = {{4.5f}, {1.0f}}, .dtype = dtype});
      const auto checkpoint = Open(draft);
      ASSERT_NE(checkpoint, nullptr);
      ASSERT_NE(checkpoint->kv_scales(), nullptr) << checkpoint->kv_scales_problem();
      const KvScales& scales = *checkpoint->kv_scales();
      EXPECT_EQ(scales.k, (Scales{{0.5f, 0.5f}, {0.0078125f, 0.0078125f}}));
      EXPECT_EQ(scales.v,
                form == KvScaleForm::kCombined ? scales.k : (Scales{{4.5f, 4.5f}, {1, 1}}));
      EXPECT_THAT(scales.source, EndsWith(", per tensor"));
      EXPECT_EQ(checkpoint->kv_scales_problem(), "");
      EXPECT_THAT(checkpoint->warnings(), IsEmpty());
      EXPECT_THAT(checkpoint->ignored(), IsEmpty());
      const bool asks = form != KvScaleForm::kFused && form != KvScaleForm::kCombined;
      EXPECT_EQ(checkpoint->config().kv_cache_dtype, asks ? "fp8" : "bfloat16");
      EXPECT_EQ(checkpoint->config().half_dtype, "bfloat16");
    }
  }
}

TEST_F(HfKvScalesTest, OneScalePerHead) {
  const auto checkpoint = Open(Draft({{0.5f, 0.25f}, {1.0f}}, {{2.0f}, {8.0f, 4.0f}}));
  ASSERT_NE(checkpoint->kv_scales(), nullptr) << checkpoint->kv_scales_problem();
  EXPECT_EQ(checkpoint->kv_scales()->k, (Scales{{0.5f, 0.25f}, {1, 1}}));
  EXPECT_EQ(checkpoint->kv_scales()->v, (Scales{{2, 2}, {8, 4}}));
  EXPECT_EQ(checkpoint->kv_scales()->source, "compressed-tensors, per KV head");
}

TEST_F(HfKvScalesTest, ShapesOfOneValueAndOfTheHeads) {
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{}, {1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    HfDraft draft = Draft();
    draft.Tensor(kKScale).shape = shape;
    EXPECT_NE(Open(draft)->kv_scales(), nullptr);
  }
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{2}, {2, 1, 1}, {1, 2, 1}}) {
    HfDraft draft = Draft({{0.5f, 0.25f}, {1.0f}});
    draft.Tensor(kKScale).shape = shape;
    EXPECT_NE(Open(draft)->kv_scales(), nullptr);
  }
}

TEST_F(HfKvScalesTest, WithoutTensorsOrKeysThereIsNothingToSay) {
  const auto checkpoint = Open(HfDraft());
  EXPECT_EQ(checkpoint->kv_scales(), nullptr);
  EXPECT_EQ(checkpoint->kv_scales_problem(), "");
  EXPECT_THAT(checkpoint->warnings(), IsEmpty());
  EXPECT_EQ(checkpoint->config().kv_cache_dtype, "bfloat16");
}

TEST_F(HfKvScalesTest, ASetThatIsNotWholeIsNotUsed) {
  HfDraft draft;
  draft.keys["num_hidden_layers"] = "30";
  draft.Fill();
  AddKvScales(
      draft,
      {.form = KvScaleForm::kCompressedTensors, .k = Scales(30, {0.5f}), .v = Scales(30, {0.5f})});
  HfDraft two = draft;
  two.Remove("model.layers.3.self_attn.k_scale");
  EXPECT_THAT(ProblemOf(two), HasSubstr("layer 3 of 30 lacks self_attn.k_scale; use"));
  two.Remove("model.layers.7.self_attn.k_scale");
  EXPECT_THAT(ProblemOf(two), HasSubstr("layers 3, 7 of 30 lack self_attn.k_scale; use"));
  HfDraft many = draft;
  for (int i = 0; i < 29; ++i) many.Remove(fmt::format("model.layers.{}.self_attn.v_scale", i));
  EXPECT_THAT(ProblemOf(many), HasSubstr("layers 0, 1, 2, 3, 4, 5, 6, 7 and 21 more of 30 lack "
                                         "self_attn.v_scale"));
  many.Remove("model.layers.29.self_attn.v_scale");  // K without V
  EXPECT_THAT(ProblemOf(many), HasSubstr("none of the 30 layers has self_attn.v_scale"));
}

TEST_F(HfKvScalesTest, KeysThatAskForScalesThatAreNotThere) {
  for (const KvScaleForm form :
       {KvScaleForm::kCompressedTensors, KvScaleForm::kModelopt, KvScaleForm::kQuark}) {
    HfDraft draft;
    AddKvScales(draft, {.form = form, .k = {}, .v = {}});
    EXPECT_THAT(ProblemOf(draft), HasSubstr("asks for them and no tensor holds any"));
    EXPECT_EQ(Open(draft)->config().kv_cache_dtype, "fp8");  // of dynamic scales then
  }
}

TEST_F(HfKvScalesTest, WrongShapesAreNamed) {
  HfDraft draft = Draft({{1, 2, 3}, {1}});
  EXPECT_THAT(ProblemOf(draft), HasSubstr("'model.layers.0.self_attn.k_scale' has the shape [3, 1, "
                                          "1], expected 1 or 2 values"));
  draft = Draft();
  draft.Tensor(kVScale) = {.name = kVScale, .shape = {0}, .values = {}};
  EXPECT_THAT(ProblemOf(draft), HasSubstr("v_scale' has the shape [0], expected"));
  draft.Tensor(kVScale) = {.name = kVScale, .shape = {2, 2}, .values = {1, 1, 1, 1}};
  EXPECT_THAT(ProblemOf(draft), HasSubstr("v_scale' has the shape [2, 2], expected"));
}

TEST_F(HfKvScalesTest, ScalesAreFiniteAndAboveZero) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::pair<float, const char*> bad[] = {
      {0.0f, "0"},        {-0.0f, "-0"},        {-1.0f, "-1"},  // what loaders preset
      {kInfinity, "inf"}, {-kInfinity, "-inf"}, {std::nanf(""), "nan"}};
  for (const auto& [value, text] : bad) {
    EXPECT_THAT(
        ProblemOf(Draft({{0.5f}, {0.25f}}, {{2.0f}, {value}})),
        HasSubstr(fmt::format("'{}' is {}, expected a finite number above 0", kVScale, text)));
    EXPECT_THAT(ProblemOf(Draft({{0.5f, value}, {0.25f}})), HasSubstr("'" + std::string(kKScale)));
  }
}

TEST_F(HfKvScalesTest, SchemesThatAreNotApplied) {
  const auto problem = [&](const std::string& scheme) {
    HfDraft draft = Draft();
    draft.keys["quantization_config"] =
        R"({"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": )" +
        scheme + "}";
    return ProblemOf(draft);
  };
  EXPECT_THAT(problem(R"({"num_bits": 8, "type": "int"})"),
              HasSubstr("kv_cache_scheme.type is \"int\", expected \"float\""));
  EXPECT_THAT(problem(R"({"num_bits": 4, "type": "float"})"), HasSubstr("num_bits is 4"));
  EXPECT_THAT(problem(R"({"type": "float", "symmetric": false})"), HasSubstr("symmetric is false"));
  EXPECT_THAT(problem(R"({"type": "float", "dynamic": true})"), HasSubstr("dynamic is true"));
}

TEST_F(HfKvScalesTest, ZeroPointsAreZero) {
  for (const char* dtype : {"F32", "BF16"}) {
    HfDraft draft = Draft();
    const std::string name = "model.layers.1.self_attn.k_zero_point";
    draft.tensors.push_back({.name = name, .shape = {1}, .values = {0}, .dtype = dtype});
    const auto checkpoint = Open(draft);
    EXPECT_NE(checkpoint->kv_scales(), nullptr) << checkpoint->kv_scales_problem();
    EXPECT_THAT(checkpoint->ignored(), IsEmpty());
    draft.Tensor(name).values = {3};
    EXPECT_THAT(ProblemOf(draft), HasSubstr("'" + name + "' is not 0"));
  }
}

// compressed-tensors stores them in the type of the codes, which nothing else here reads.
TEST_F(HfKvScalesTest, ZeroPointsOfTypesWithoutArithmetic) {
  const HfDraft draft = Draft();
  for (const char* dtype : {"F8_E4M3", "F8_E5M2", "I8", "U8"}) {
    for (const std::byte byte : {std::byte{0}, std::byte{8}}) {
      draft.Write(folder_.string());
      // The tensors of the draft, as one file, and the zero points beside them.
      ByteVector bytes = MakeSafetensors(draft.tensors);
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), sizeof(length));
      const auto header_end = bytes.begin() + 8 + static_cast<ptrdiff_t>(length);
      std::string header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
      ByteVector data(header_end, bytes.end());
      header.erase(header.find_last_of('}'));
      header += fmt::format(R"(,"model.layers.0.self_attn.v_zero_point":{{"dtype":"{}",)"
                            R"("shape":[2,1,1],"data_offsets":[{},{}]}}}})",
                            dtype, data.size(), data.size() + 2);
      data.insert(data.end(), {std::byte{0}, byte});
      ASSERT_TRUE(
          WriteFile((folder_ / "model.safetensors").string(), WrapSafetensors(header, data)).ok());
      const auto checkpoint = Checkpoint::Open(folder_.string());
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      if (byte == std::byte{0}) {
        EXPECT_NE((*checkpoint)->kv_scales(), nullptr) << (*checkpoint)->kv_scales_problem();
      } else {
        EXPECT_THAT((*checkpoint)->kv_scales_problem(), HasSubstr("v_zero_point' is not 0"));
      }
    }
  }
}

TEST_F(HfKvScalesTest, ScalesOfTwoKindsAreNotGuessedAmong) {
  HfDraft draft = Draft();
  AddKvScales(draft, {.form = KvScaleForm::kCombined, .k = {{1}, {1}}, .v = {}});
  EXPECT_THAT(ProblemOf(draft), AllOf(HasSubstr("scales of two kinds, such as '"),
                                      HasSubstr("'self_attn.kv_scale'")));
}

TEST_F(HfKvScalesTest, ScalesOfQueriesAreIgnoredAndListed) {
  HfDraft draft = Draft();
  std::vector<std::string> names;
  for (const char* name :
       {"q_scale", "q_zero_point", "prob_output_scale", "q_proj.output_scale", "q_proj.q_scale"}) {
    names.push_back(fmt::format("model.layers.1.self_attn.{}", name));
    draft.tensors.push_back({.name = names.back(), .shape = {1}, .values = {7}});
  }
  const auto checkpoint = Open(draft);
  ASSERT_NE(checkpoint->kv_scales(), nullptr) << checkpoint->kv_scales_problem();
  EXPECT_THAT(checkpoint->ignored(), testing::UnorderedElementsAreArray(names));
  EXPECT_THAT(checkpoint->warnings(), IsEmpty());
}

// What is named alike and belongs to no layer is as wrong as any other tensor too many.
TEST_F(HfKvScalesTest, ScalesOutsideTheModelAreNotAccepted) {
  for (const char* name :
       {"model.layers.2.self_attn.k_scale", "model.layers.00.self_attn.k_scale", "k_scale",
        "model.layers.0.self_attn.k_scale.weight", "model.layers.0.mlp.up_proj.k_scale",
        "model.layers.4294967296.self_attn.k_scale", "model.layers.0.self_attn.k_proj.weight_scale",
        "model.layers..self_attn.k_scale", "model.layers.0"}) {
    HfDraft draft = Draft();
    draft.tensors.push_back({.name = name, .shape = {1}, .values = {1}});
    draft.Write(folder_.string());
    const auto checkpoint = Checkpoint::Open(folder_.string());
    ASSERT_FALSE(checkpoint.ok()) << name;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(fmt::format("unused: '{}' [1]", name)));
  }
}

TEST_F(HfKvScalesTest, ModeloptSaysItInAFileOfItsOwn) {
  HfDraft draft;
  AddKvScales(draft, {.form = KvScaleForm::kModelopt, .k = {{1}, {2}}, .v = {{3}, {4}}});
  draft.keys.erase("quantization_config");
  PutModelopt(R"({"producer": {"name": "modelopt"},
                  "quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  {
    const auto checkpoint = Open(draft);
    ASSERT_NE(checkpoint->kv_scales(), nullptr) << checkpoint->kv_scales_problem();
    EXPECT_EQ(checkpoint->config().kv_cache_dtype, "fp8");
    EXPECT_EQ(checkpoint->kv_scales()->source, "modelopt, per tensor");
  }
  PutModelopt(R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "NVFP4"}})");
  EXPECT_THAT(ProblemOf(draft), HasSubstr("kv_cache_quant_algo is \"NVFP4\", expected \"FP8\""));
  EXPECT_EQ(Open(draft)->config().kv_cache_dtype, "bfloat16");
  PutModelopt(R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})");
  EXPECT_THAT(Checkpoint::Open(folder_.string()).error().message,
              AllOf(HasSubstr("hf_quant_config.json: key 'quantization.quant_algo' is \"FP8\""),
                    HasSubstr("use another model")));
  PutModelopt("not JSON");
  EXPECT_THAT(Checkpoint::Open(folder_.string()).error().message, HasSubstr("is not valid JSON"));
  for (const char* text : {"{}", R"({"quantization": 7})", R"({"quantization": []})"}) {
    PutModelopt(text);
    EXPECT_NE(Open(draft)->kv_scales(), nullptr) << text;
  }
}

// Checkpoints whose weights are quantized too stay refused.
TEST_F(HfKvScalesTest, QuantizedWeightsAreRefusedByName) {
  HfDraft draft = Draft();
  draft.keys["quantization_config"] =
      R"({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"},
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}})";
  draft.Write(folder_.string());
  EXPECT_THAT(Checkpoint::Open(folder_.string()).error().message,
              AllOf(HasSubstr("key 'quantization_config' is "),
                    HasSubstr("(accepted: absent, or of the KV cache alone); use another model")));
}

TEST_F(HfKvScalesTest, AFloat16ModelKeepsItsOtherType) {
  HfDraft draft = Draft();
  draft.keys["torch_dtype"] = R"("float16")";
  const auto checkpoint = Open(draft);
  EXPECT_EQ(checkpoint->config().kv_cache_dtype, "fp8");
  EXPECT_EQ(checkpoint->config().half_dtype, "float16");
}

// Whatever the shapes are, the file is refused or its scales are not used.
TEST_F(HfKvScalesTest, AbsurdShapesDoNotCrash) {
  const HfDraft draft = Draft();
  const ByteVector bytes = MakeSafetensors(draft.tensors);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::string header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const ByteVector data(bytes.begin() + 8 + static_cast<ptrdiff_t>(length), bytes.end());
  draft.Write(folder_.string());
  int refused = 0, unused = 0;
  for (const char* shape :
       {"0", "0,0", "18446744073709551615", "4294967296,4294967296", "0,18446744073709551615", "2",
        "1,1,1,1,1,1,1,1,1", "9223372036854775808,2", "-1", "1.5", "0,4611686018427387904"}) {
    for (const char* part : {"k_scale", "v_scale"}) {
      for (const bool empty : {false, true}) {  // with four bytes of data, and with none
        std::string changed = header;
        const size_t at = changed.find(fmt::format("model.layers.0.self_attn.{}", part));
        const size_t from = changed.find("[1]", at);
        changed.replace(from, 3, fmt::format("[{}]", shape));
        if (empty) {
          const size_t comma = changed.find(',', changed.find("data_offsets", from)) + 1;
          const size_t begin = changed.find('[', changed.find("data_offsets", from)) + 1;
          const std::string first = changed.substr(begin, comma - 1 - begin);
          changed.replace(comma, changed.find(']', comma) - comma, first);
        }
        ASSERT_TRUE(
            WriteFile((folder_ / "model.safetensors").string(), WrapSafetensors(changed, data))
                .ok());
        const auto checkpoint = Checkpoint::Open(folder_.string());
        if (!checkpoint.ok()) {
          ++refused;
          EXPECT_THAT(checkpoint.error().message, Not(HasSubstr("\n")));
        } else {
          ++unused;
          EXPECT_EQ((*checkpoint)->kv_scales(), nullptr);
          EXPECT_NE((*checkpoint)->kv_scales_problem(), "");
        }
      }
    }
  }
  EXPECT_EQ(refused + unused, 44);
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace masu
