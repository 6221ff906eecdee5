#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

// Tensors of models have at most four; anything long is damage.
constexpr size_t kMaxDimensions = 8;

// Where in the grammar the parser stands.
enum class Place { kStart, kTop, kMetadata, kEntry, kArray, kEnd };

class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::string fault;  // why the parser stopped

  bool start_object(size_t) override {
    if (place_ == Place::kStart) return Move(Place::kTop);
    if (place_ != Place::kTop) return Unexpected("an object");
    if (key_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return Fail("'__metadata__' occurs twice");
      return Move(Place::kMetadata);
    }
    entries.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
    return Move(Place::kEntry);
  }
  bool end_object() override {
    if (place_ == Place::kTop) return Move(Place::kEnd);
    if (place_ == Place::kEntry) {
      const SafetensorsEntry& entry = entries.back();
      for (const auto& [present, name] : {std::pair(entry.dtype.has_value(), "dtype"),
                                          std::pair(entry.shape.has_value(), "shape"),
                                          std::pair(entry.offsets.has_value(), "data_offsets")}) {
        if (!present) return FailEntry(fmt::format("has no '{}'", name));
      }
    }
    return Move(Place::kTop);
  }
  bool start_array(size_t) override {
    if (place_ != Place::kEntry) return Unexpected("a list");
    auto* list = key_ == "shape"          ? &entries.back().shape
                 : key_ == "data_offsets" ? &entries.back().offsets
                                          : nullptr;
    if (list == nullptr) return Unexpected("a list");
    if (list->has_value()) return FailEntry(fmt::format("has two '{}'", key_));
    list_ = &list->emplace();
    return Move(Place::kArray);
  }
  bool end_array() override {
    if (key_ == "data_offsets" && list_->size() != 2) {
      return FailEntry(fmt::format("has {} data_offsets, expected 2", list_->size()));
    }
    return Move(Place::kEntry);
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    const bool known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (place_ == Place::kEntry && !known) {
      return FailEntry(fmt::format("has the unknown field {}", QuoteName(key_)));
    }
    return true;
  }
  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kEntry || key_ != "dtype") return Unexpected("a string");
    if (entries.back().dtype) return FailEntry("has two 'dtype'");
    entries.back().dtype = std::move(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kArray) return Unexpected("a number");
    list_->push_back(value);
    if (list_->size() <= kMaxDimensions) return true;
    return FailEntry(fmt::format("has more than {} values in '{}'", kMaxDimensions, key_));
  }
  bool number_integer(int64_t value) override {
    return FailAt(fmt::format("has {} in {}, expected no negative numbers", value, Name(key_)));
  }
  bool number_float(double, const std::string& text) override {
    return FailAt(
        fmt::format("has {} in {}, expected integers below 2^64", Name(text), Name(key_)));
  }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool null() override { return Unexpected("null"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (fault.empty()) fault = fmt::format("its header is not valid JSON at byte {}", position);
    return false;
  }

 private:
  static std::string Name(std::string_view name) { return QuoteName(name); }
  bool Move(Place place) {
    place_ = place;
    return true;
  }
  bool Fail(std::string text) {
    fault = std::move(text);
    return false;
  }
  bool FailEntry(std::string_view text) {
    return Fail(fmt::format("tensor {} {}", QuoteName(entries.back().name), text));
  }
  bool FailAt(std::string_view text) {
    if (place_ == Place::kEntry || place_ == Place::kArray) return FailEntry(text);
    return Fail(fmt::format("its header {}", text));
  }
  bool Unexpected(std::string_view what) {
    return FailAt(fmt::format("has {} at {}, where the format has none", what, QuoteName(key_)));
  }

  Place place_ = Place::kStart;
  bool has_metadata_ = false;
  std::string key_;
  std::vector<uint64_t>* list_ = nullptr;
};

}  // namespace

Result<std::vector<SafetensorsEntry>> ReadSafetensorsHeader(std::string_view json,
                                                            const std::string& file) {
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    return DataLoss("{}: {}; the file is damaged, fetch it again", file, reader.fault);
  }
  return std::move(reader.entries);
}

}  // namespace masu
