#include "checkpoint/gguf.h"

#include <utility>

#include "checkpoint/file_mapping.h"
#include "checkpoint/gguf_parser.h"
#include "checkpoint/gguf_split.h"

namespace masu {
namespace {

class GgufFileImpl final : public GgufFile {
 public:
  GgufFileImpl(FileMapping mapping, std::string path, GgufParser parser)
      : mapping_(std::move(mapping)), path_(std::move(path)), contents_(std::move(parser)) {}

  const std::string& path() const override { return path_; }
  std::span<const GgufTensor> tensors() const override { return contents_.tensors; }
  const GgufTensor* FindTensor(std::string_view name) const override {
    const auto found = contents_.tensor_index.find(name);
    return found == contents_.tensor_index.end() ? nullptr : &contents_.tensors[found->second];
  }
  std::vector<std::string> keys() const override { return metadata().keys(); }
  bool Has(std::string_view key) const override { return metadata().Has(key); }
  Result<std::optional<uint64_t>> GetUnsigned(std::string_view key) const override {
    return metadata().GetUnsigned(key);
  }
  Result<std::optional<double>> GetFloat(std::string_view key) const override {
    return metadata().GetFloat(key);
  }
  Result<std::optional<bool>> GetBool(std::string_view key) const override {
    return metadata().GetBool(key);
  }
  Result<std::optional<std::string>> GetString(std::string_view key) const override {
    return metadata().GetString(key);
  }
  Result<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const override {
    return metadata().GetStrings(key);
  }
  Result<std::optional<std::vector<int64_t>>> GetIntegers(std::string_view key) const override {
    return metadata().GetIntegers(key);
  }
  Result<std::optional<std::vector<float>>> GetFloats(std::string_view key) const override {
    return metadata().GetFloats(key);
  }
  void Release(const GgufTensor& tensor) const override { mapping_.Drop(tensor.data); }

 private:
  const GgufMetadata& metadata() const { return contents_.metadata; }

  FileMapping mapping_;  // empty if the bytes belong to the caller of Parse
  std::string path_;
  GgufParser contents_;
};

Result<std::unique_ptr<GgufFile>> OpenPart(const std::string& path) {
  MASU_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Map(path));
  GgufParser parser(mapping.bytes(), path);
  MASU_TRY(parser.Run());
  return std::unique_ptr<GgufFile>(new GgufFileImpl(std::move(mapping), path, std::move(parser)));
}

}  // namespace

uint64_t GgufTensor::elements() const {
  uint64_t elements = 1;
  for (const uint64_t size : shape) elements *= size;
  return elements;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  MASU_ASSIGN_OR_RETURN(auto file, OpenPart(path));
  return OpenOtherParts(std::move(file), OpenPart);
}

Result<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const std::byte> bytes,
                                                  std::string name) {
  GgufParser parser(bytes, name);
  MASU_TRY(parser.Run());
  return std::unique_ptr<GgufFile>(new GgufFileImpl({}, std::move(name), std::move(parser)));
}

}  // namespace masu
