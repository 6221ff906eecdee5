// Reading JSON that a client sent: bounded parsing, and typed access to fields with errors that
// name the field. Nothing here throws.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"

namespace masu {

using Json = nlohmann::ordered_json;

// Bounds on what a body may make of memory and time. nlohmann's objects are lists (they keep the
// order, which templates need), so building one is quadratic in its members; a value takes 16 bytes
// and more, so a body of "[1,1,..." would grow eightfold; destroying and copying recurse. `values`
// counts units of 16 bytes: a string takes kStringWeight of them, its heap block included, and an
// object or array kContainerWeight.
struct JsonLimits {
  static constexpr size_t kStringWeight = 5;
  static constexpr size_t kContainerWeight = 6;
  size_t depth = 128;
  size_t values = 4u << 20;
  size_t members = 4096;  // of one object
};

// Parses a request body that has to be an object.
Result<Json> ParseJsonObject(std::string_view text, const JsonLimits& limits = {});

// JSON text of what we build ourselves; text that is not UTF-8 is replaced, never thrown about.
std::string DumpJson(const Json& json);

// "a string", "an array": for messages.
std::string_view JsonTypeName(const Json& json);

// Takes the fields of one object one by one. The first error sticks; later reads do nothing.
// A null counts as absent, as in the OpenAI API.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {}

  // nullptr if absent or null.
  const Json* Find(std::string_view name) const;

  // Each leaves `*out` alone if the field is absent.
  void Read(const char* name, bool* out);
  void Read(const char* name, std::string* out);
  void Read(const char* name, float* out);
  void Read(const char* name, uint32_t* out);
  void Read(const char* name, int32_t* out);
  void Read(const char* name, std::optional<uint32_t>* out);
  void Read(const char* name, std::optional<uint64_t>* out);  // negative values wrap: for seeds
  void Read(const char* name, std::vector<TokenId>* out);
  // A string or an array of strings.
  void ReadStrings(const char* name, std::vector<std::string>* out);

  void Fail(std::string_view param, std::string message);
  bool ok() const { return !error_.has_value(); }
  Result<void> status() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  void WrongType(const char* name, std::string_view wanted, const Json& got);
  // The integer of a field, if it is there, is one, and lies in [low, high].
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high);

  const Json& object_;
  std::optional<Error> error_;
};

// True for what a client writes to say "on": anything but null, false, 0, "", [] and {}.
bool IsTruthy(const Json& json);

}  // namespace masu
