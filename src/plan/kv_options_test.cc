#include "plan/kv_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace masu {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr KvSide kBf16{KvEncoding::kBFloat16, KvScale::kNone, false};
constexpr KvSide kInt8{KvEncoding::kInt8, KvScale::kDynamic, true};
constexpr KvSide kInt4{KvEncoding::kInt4, KvScale::kGroup, true};
constexpr KvSide kFp8{KvEncoding::kFp8E4M3, KvScale::kDynamic, false};

const KvModelFacts kFacts = {.num_layers = 8,
                             .slides = {false, true, true, true, false, true, true, true}};

KvOption Make(const KvDtypeSpec& spec, const KvModelFacts& facts = kFacts) {
  const Result<KvOption> option = MakeKvOption(spec, facts);
  EXPECT_TRUE(option.ok()) << option.error().message;
  return option.ok() ? *option : KvOption();
}
std::string ErrorOf(const KvDtypeSpec& spec, const KvModelFacts& facts = kFacts) {
  const Result<KvOption> option = MakeKvOption(spec, facts);
  return option.ok() ? "no error" : option.error().message;
}

TEST(KvOptions, NamesAndTheirCanonicalForm) {
  const std::pair<const char*, const char*> names[] = {
      {"auto", "bfloat16"},
      {"half", "float16"},
      {"fp8", "fp8_e4m3"},
      {"fp8:unit", "fp8_e4m3:unit"},
      {"fp8_e5m2", "fp8_e5m2"},
      {"int8_per_token_head", "int8"},
      {"int8/int4", "int8/int4"},
      {"int8/int8", "int8"},
      {"fp8/bfloat16:unit", "fp8_e4m3/bfloat16:unit"},
      {"int4:plain", "int4:plain"},
      {"int4:norotate:plain", "int4:plain:norotate"}};
  for (const auto& [name, canonical] : names) {
    const KvOption option = Make({.dtype = name});
    EXPECT_EQ(option.name, name);
    EXPECT_EQ(option.canonical, canonical);
    // A canonical name means the same.
    const KvOption again = Make({.dtype = canonical});
    EXPECT_EQ(again.canonical, canonical);
    EXPECT_EQ(again.layers, option.layers);
    EXPECT_EQ(again.first_page, option.first_page);
  }
}

TEST(KvOptions, SidesApart) {
  const KvOption option = Make({.dtype = "fp8", .v = "int8"});
  EXPECT_EQ(option.canonical, "fp8_e4m3/int8");
  EXPECT_EQ(option.sides, (KvLayerSides{kFp8, kInt8}));
  EXPECT_EQ(Make({.dtype = "auto", .k = "int8"}).canonical, "int8/bfloat16");
}

TEST(KvOptions, Int4StaysWiderAtTheEndsAndInTheFirstPage) {
  const KvOption option = Make({.dtype = "int8/int4"});
  ASSERT_THAT(option.layers, SizeIs(8));
  for (uint32_t i = 0; i < 8; ++i) {
    const bool at_an_end = i == 0 || i == 7;
    EXPECT_EQ(option.layers[i], (KvLayerSides{kInt8, at_an_end ? kInt8 : kInt4})) << i;
    EXPECT_EQ(option.first_page[i], (KvLayerSides{kInt8, kInt8})) << i;
  }
  const KvOption plain = Make({.dtype = "int4:plain"});
  for (const KvLayerSides& sides : plain.layers) EXPECT_EQ(sides, (KvLayerSides{kInt4, kInt4}));
  EXPECT_THAT(plain.first_page, IsEmpty());
  EXPECT_THAT(Make({.dtype = "int8"}).first_page, IsEmpty());
  // Pages of one layer rotate the same sides, or queries could not meet both.
  const KvOption unrotated = Make({.dtype = "int4:norotate"});
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(unrotated.first_page[i].k.rotated, unrotated.layers[i].k.rotated);
}

TEST(KvOptions, BitsAreThoseOfTheNarrowestSideOfAnyLayer) {
  EXPECT_EQ(Make({.dtype = "float32"}).bits(), 32u);
  EXPECT_EQ(Make({}).bits(), 16u);
  EXPECT_EQ(Make({.dtype = "fp8:unit"}).bits(), 8u);
  EXPECT_EQ(Make({.dtype = "bfloat16/int8"}).bits(), 8u);
  EXPECT_EQ(Make({.dtype = "int8/int4:norotate:plain"}).bits(), 4u);
  EXPECT_EQ(Make({.dtype = "int4", .skip_layers = "1-6"}).bits(), 8u);  // the ends alone are left
}

TEST(KvOptions, SkippedLayersStayAt16Bits) {
  const auto skipped = [](const std::string& list) {
    const KvOption option = Make({.dtype = "int8", .skip_layers = list});
    std::string text;
    for (const KvLayerSides& sides : option.layers)
      text += sides == KvLayerSides{kBf16, kBf16} ? "x" : ".";
    return text;
  };
  EXPECT_EQ(skipped("0"), "x.......");
  EXPECT_EQ(skipped("1,3-5"), ".x.xxx..");
  EXPECT_EQ(skipped("first:2,last:1"), "xx.....x");
  EXPECT_EQ(skipped("sliding_window"), ".xxx.xxx");
  EXPECT_EQ(skipped("first:0"), "........");
  // Those are not rotated, so that their first page is theirs as well.
  const KvOption int4 = Make({.dtype = "int4", .skip_layers = "3"});
  EXPECT_EQ(int4.first_page[3], (KvLayerSides{kBf16, kBf16}));
  EXPECT_EQ(int4.first_page[4], (KvLayerSides{kInt8, kInt8}));
  for (const char* wrong : {"8", "x", "3-1", "first:9", "first:", "middle:1", "1,,2", "-1", "1-"}) {
    EXPECT_THAT(ErrorOf({.dtype = "int8", .skip_layers = wrong}),
                HasSubstr("--kv-cache-dtype-skip-layers"))
        << wrong;
  }
  EXPECT_THAT(ErrorOf({.dtype = "int8", .skip_layers = "sliding_window"}, {.num_layers = 8}),
              HasSubstr("no sliding windows"));
}

TEST(KvOptions, ScalesOfTheCheckpoint) {
  KvModelFacts facts = kFacts;
  EXPECT_THAT(ErrorOf({.dtype = "fp8", .scale = "checkpoint"}), HasSubstr("no K/V scales"));
  facts.asks_for_fp8 = true;
  EXPECT_EQ(Make({}, facts).canonical, "fp8_e4m3");
  EXPECT_EQ(Make({}, facts).scale, "dynamic");
  facts.brings_scales = true;
  EXPECT_EQ(Make({}, facts).canonical, "fp8_e4m3:checkpoint");
  EXPECT_EQ(Make({.dtype = "fp8:dynamic"}, facts).scale, "dynamic");
  EXPECT_EQ(Make({.dtype = "fp8", .scale = "unit"}, facts).scale, "unit");
  EXPECT_EQ(Make({.dtype = "int8"}, facts).scale, "dynamic");
}

TEST(KvOptions, WhatCannotBeIsRefusedByName) {
  EXPECT_THAT(ErrorOf({.dtype = "fp9"}), HasSubstr("unknown kv_cache_dtype 'fp9'"));
  EXPECT_THAT(ErrorOf({.dtype = "int8/int4/int4"}), HasSubstr("two as K/V"));
  EXPECT_THAT(ErrorOf({.dtype = "int8:fast"}), HasSubstr("unknown word 'fast'"));
  EXPECT_THAT(ErrorOf({.dtype = "int8:unit"}), HasSubstr("does not apply to int8"));
  EXPECT_THAT(ErrorOf({.dtype = "nvfp4"}), HasSubstr("not built yet"));
  KvModelFacts latent = kFacts;
  latent.latent = true;
  EXPECT_THAT(ErrorOf({.dtype = "int4"}, latent),
              HasSubstr("Model architecture not supported for kv_cache_dtype='int4'"));
  EXPECT_THAT(ErrorOf({.dtype = "int8/fp8"}, latent), HasSubstr("one cache for K and V"));
}

}  // namespace
}  // namespace masu
