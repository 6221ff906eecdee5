#include "checkpoint/gguf_split.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

// The format numbers parts with five digits.
constexpr uint64_t kMaxParts = 99999;

class SplitGgufFile final : public GgufFile {
 public:
  explicit SplitGgufFile(std::vector<std::unique_ptr<GgufFile>> parts) : parts_(std::move(parts)) {}

  // Collects the tensors of all parts; `stated` is split.tensors.count of the first.
  Result<void> Index(std::optional<uint64_t> stated) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      for (const GgufTensor& tensor : parts_[i]->tensors()) {
        if (!index_.emplace(tensor.name, tensors_.size()).second) {
          return DataLoss("{}: tensor {} occurs in {} as well; fetch both parts again",
                          parts_[i]->path(), QuoteName(tensor.name),
                          parts_[part_of_[index_[tensor.name]]]->path());
        }
        tensors_.push_back(tensor);
        part_of_.push_back(i);
      }
    }
    if (stated.value_or(tensors_.size()) != tensors_.size()) {
      return DataLoss("{}: its {} parts hold {} tensors, key 'split.tensors.count' says {}; {}",
                      path(), parts_.size(), tensors_.size(), *stated, "fetch the parts again");
    }
    return {};
  }

  const std::string& path() const override { return first().path(); }
  uint64_t num_parts() const override { return parts_.size(); }
  std::span<const GgufTensor> tensors() const override { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const override {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }
  std::vector<std::string> keys() const override { return first().keys(); }
  bool Has(std::string_view key) const override { return first().Has(key); }
  Result<std::optional<uint64_t>> GetUnsigned(std::string_view key) const override {
    return first().GetUnsigned(key);
  }
  Result<std::optional<double>> GetFloat(std::string_view key) const override {
    return first().GetFloat(key);
  }
  Result<std::optional<bool>> GetBool(std::string_view key) const override {
    return first().GetBool(key);
  }
  Result<std::optional<std::string>> GetString(std::string_view key) const override {
    return first().GetString(key);
  }
  Result<std::optional<std::vector<std::string>>> GetStrings(std::string_view key) const override {
    return first().GetStrings(key);
  }
  Result<std::optional<std::vector<int64_t>>> GetIntegers(std::string_view key) const override {
    return first().GetIntegers(key);
  }
  Result<std::optional<std::vector<float>>> GetFloats(std::string_view key) const override {
    return first().GetFloats(key);
  }
  // `tensor` is one that FindTensor or tensors() handed out.
  void Release(const GgufTensor& tensor) const override {
    parts_[part_of_[static_cast<size_t>(&tensor - tensors_.data())]]->Release(tensor);
  }

 private:
  const GgufFile& first() const { return *parts_.front(); }

  std::vector<std::unique_ptr<GgufFile>> parts_;
  std::vector<GgufTensor> tensors_;
  std::vector<size_t> part_of_;  // parallel to tensors_
  std::unordered_map<std::string, size_t> index_;
};

std::string PartSuffix(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

Result<std::unique_ptr<GgufFile>> OpenNumbered(const std::string& prefix, uint64_t number,
                                               uint64_t count, const GgufOpener& open) {
  const std::string path = prefix + PartSuffix(number, count);
  auto part = open(path);
  if (!part.ok() && part.error().code == ErrorCode::kNotFound) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: part {} of {} of the split model is missing; fetch it into the folder of "
                     "the first part",
                     path, number + 1, count);
  }
  if (!part.ok()) return part.error();
  MASU_ASSIGN_OR_RETURN(const auto stated_number, (*part)->GetUnsigned("split.no"));
  MASU_ASSIGN_OR_RETURN(const auto stated_count, (*part)->GetUnsigned("split.count"));
  if (stated_number != number || stated_count != count) {
    return DataLoss("{}: says that it is part {} of {}, expected part {} of {}; {}", path,
                    stated_number.value_or(0) + 1, stated_count.value_or(0), number + 1, count,
                    "fetch it again");
  }
  return part;
}

}  // namespace

Result<std::unique_ptr<GgufFile>> OpenOtherParts(std::unique_ptr<GgufFile> first,
                                                 const GgufOpener& open) {
  MASU_ASSIGN_OR_RETURN(const auto count, first->GetUnsigned("split.count"));
  if (count.value_or(1) <= 1) return first;
  const std::string path = first->path();
  if (*count > kMaxParts) {
    return DataLoss("{}: key 'split.count' is {}, at most {} parts are possible", path, *count,
                    kMaxParts);
  }
  MASU_ASSIGN_OR_RETURN(const auto number, first->GetUnsigned("split.no"));
  if (number.value_or(0) != 0) {
    return InvalidArgument("{}: is part {} of {} of a split model; give the first one, *{}", path,
                           *number + 1, *count, PartSuffix(0, *count));
  }
  if (!path.ends_with(PartSuffix(0, *count))) {
    return InvalidArgument(
        "{}: is the first of {} parts of a split model, so its name must end in "
        "{}, or the others cannot be found; rename it back",
        path, *count, PartSuffix(0, *count));
  }
  const std::string prefix = path.substr(0, path.size() - PartSuffix(0, *count).size());
  MASU_ASSIGN_OR_RETURN(const auto num_tensors, first->GetUnsigned("split.tensors.count"));
  std::vector<std::unique_ptr<GgufFile>> parts;
  parts.push_back(std::move(first));
  for (uint64_t i = 1; i < *count; ++i) {
    MASU_ASSIGN_OR_RETURN(auto part, OpenNumbered(prefix, i, *count, open));
    parts.push_back(std::move(part));
  }
  auto all = std::make_unique<SplitGgufFile>(std::move(parts));
  MASU_TRY(all->Index(num_tensors));
  return std::unique_ptr<GgufFile>(std::move(all));
}

}  // namespace masu
