// Writes the tiny models of tiny_models.h for tests in other languages. Prints one line of JSON on
// standard output that says what was made.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_hf_models.h"
#include "tests/support/tiny_models.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
The script is a JSON file: a list of pieces, or {"pieces": [...], "loop_to": 0} to go back to a piece
after the last, or {"pieces": [...], "end_token": 0} to end with another token than EOS (2).
A piece is a string, or {"hex": "f09f"} for bytes that are not UTF-8. Each piece becomes one token.

examples:
  make_tiny_model chain --script script.json --out chain.gguf
  make_tiny_model rand --seed 1 --layers 2 --weights q8_0 --out rand.gguf
  make_tiny_model rand --directory --kv-scales modelopt --k-scale 0.01 --v-scale 0.02 --out rand
  make_tiny_model flat --tokens 300,301 --out flat.gguf)";

const std::map<std::string, GgmlFormat> kFormats = {
    {"f32", GgmlFormat::kF32},   {"f16", GgmlFormat::kF16},   {"bf16", GgmlFormat::kBF16},
    {"q8_0", GgmlFormat::kQ8_0}, {"q4_0", GgmlFormat::kQ4_0}, {"q4_1", GgmlFormat::kQ4_1}};

const std::map<std::string, KvScaleForm> kForms = {
    {"none", KvScaleForm::kNone},         {"compressed-tensors", KvScaleForm::kCompressedTensors},
    {"modelopt", KvScaleForm::kModelopt}, {"quark", KvScaleForm::kQuark},
    {"fused", KvScaleForm::kFused},       {"combined", KvScaleForm::kCombined}};

struct CommandLine {
  std::string out;
  bool directory = false;  // of Hugging Face
  KvScaleForm kv_scales = KvScaleForm::kNone;
  std::vector<float> k_scale = {1.0f};  // of every layer: one, or one per KV head
  std::vector<float> v_scale = {1.0f};
  std::string script_path;
  TinyRandOptions rand;
  TinyChainOptions chain;
  TinyFlatOptions flat;
};

Result<std::string> ReadPiece(const Json& piece) {
  if (piece.is_string()) return piece.get<std::string>();
  if (!piece.is_object() || !piece.contains("hex") || !piece["hex"].is_string()) {
    return InvalidArgument("a piece is a string or {{\"hex\": \"f09f\"}}, not {}", piece.dump());
  }
  const auto hex = piece["hex"].get<std::string>();
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    return InvalidArgument("'{}' is not a sequence of bytes in hexadecimal", hex);
  }
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

Result<void> ReadScript(const std::string& path, TinyChainOptions& options) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("{}: cannot be read as JSON", path);
  const Json& pieces = json.is_object() && json.contains("pieces") ? json["pieces"] : json;
  if (!pieces.is_array()) return InvalidArgument("{}: holds no list of pieces", path);
  for (const Json& piece : pieces) {
    MASU_ASSIGN_OR_RETURN(std::string bytes, ReadPiece(piece));
    options.script.push_back(std::move(bytes));
  }
  if (!json.is_object()) return {};
  for (const auto& [key, value] : json.items()) {
    if (key == "pieces") continue;
    if ((key != "loop_to" && key != "end_token") || !value.is_number_unsigned()) {
      return InvalidArgument("{}: '{}' must be 'loop_to' or 'end_token' with a number", path, key);
    }
    if (key == "loop_to") options.loop_to = value.get<size_t>();
    if (key == "end_token") options.end_token = value.get<TokenId>();
  }
  return {};
}

Result<Json> Chain(CommandLine& line) {
  MASU_TRY(ReadScript(line.script_path, line.chain));
  MASU_ASSIGN_OR_RETURN(const TinyChain chain, MakeTinyChain(line.chain));
  MASU_TRY(WriteFile(line.out, chain.gguf));
  return Json{{"model", "chain"}, {"out", line.out}, {"script_ids", chain.script}};
}

Result<Json> Rand(CommandLine& line) {
  if (line.directory) {
    std::filesystem::create_directories(line.out);
    const std::vector<std::vector<float>> k(line.rand.layers, line.k_scale);
    const std::vector<std::vector<float>> v(line.rand.layers, line.v_scale);
    MASU_TRY(WriteTinyRandDirectory(line.out, line.rand, {.form = line.kv_scales, .k = k, .v = v}));
    return Json{{"model", "rand"}, {"out", line.out}};
  }
  MASU_ASSIGN_OR_RETURN(const ByteVector gguf, MakeTinyRand(line.rand));
  MASU_TRY(WriteFile(line.out, gguf));
  return Json{{"model", "rand"}, {"out", line.out}, {"bytes", gguf.size()}};
}

Result<Json> Flat(CommandLine& line) {
  MASU_ASSIGN_OR_RETURN(const ByteVector gguf, MakeTinyFlat(line.flat));
  MASU_TRY(WriteFile(line.out, gguf));
  return Json{{"model", "flat"}, {"out", line.out}, {"bytes", gguf.size()}};
}

void AddWeights(CLI::App& command, GgmlFormat& format) {
  const auto set = [&format](const std::string& name) {
    const auto found = kFormats.find(name);
    if (found == kFormats.end()) throw CLI::ValidationError("--weights", "unknown type " + name);
    format = found->second;
  };
  command.add_option_function<std::string>("--weights", set, "type of the matrices")
      ->type_name("f32|f16|bf16|q8_0|q4_0|q4_1");
}

void AddDirectoryOptions(CLI::App& command, CommandLine& line) {
  command.add_flag("--directory", line.directory,
                   "a Hugging Face directory instead of a GGUF file");
  command.add_option("--kv-scales", line.kv_scales, "how the directory brings scales of K and V")
      ->transform(CLI::CheckedTransformer(kForms));
  command.add_option("--k-scale", line.k_scale, "of every layer, or one for each KV head")
      ->delimiter(',');
  command.add_option("--v-scale", line.v_scale, "of every layer, or one for each KV head")
      ->delimiter(',');
}

void AddRandOptions(CLI::App& command, TinyRandOptions& o) {
  command.add_option("--seed", o.seed)->capture_default_str();
  command.add_option("--layers", o.layers)->capture_default_str();
  command.add_option("--hidden", o.hidden)->capture_default_str();
  command.add_option("--heads", o.heads, "query heads")->capture_default_str();
  command.add_option("--kv-heads", o.kv_heads)->capture_default_str();
  command.add_option("--head-dim", o.head_dim)->capture_default_str();
  command.add_option("--ffn", o.ffn)->capture_default_str();
  command.add_option("--vocab", o.vocab, "rows of the embedding")->capture_default_str();
  command.add_option("--context", o.context)->capture_default_str();
  command.add_option("--rope-theta", o.rope_theta)->capture_default_str();
  command.add_option("--rope-divisors", o.rope_divisors, "rope_freqs.weight, head-dim / 2 numbers")
      ->delimiter(',');
  command.add_option("--tokenizer-size", o.tokenizer_size, "tokens, if not as many as --vocab");
  command.add_option("--v-gain", o.v_gain, "factor on V")->capture_default_str();
  command.add_option("--k-spike", o.k_spike,
                     "biases as Qwen2's, with this one on two channels of K in the first and last "
                     "layer (T-KBIAS)");
  command.add_flag("--tied", o.tied, "the head is the embedding");
  AddWeights(command, o.weights);
}

int Main(int argc, char** argv) {
  CLI::App app("Writes tiny GGUF models for tests.", "make_tiny_model");
  app.require_subcommand(1);
  app.footer(kFooter);
  CommandLine line;
  CLI::App* chain = app.add_subcommand("chain", "recites a script (T-CHAIN)");
  chain->add_option("--script", line.script_path, "JSON file")->required();
  chain->add_option("--vocab", line.chain.vocab)->capture_default_str();
  chain->add_option("--context", line.chain.context)->capture_default_str();
  AddWeights(*chain, line.chain.weights);
  CLI::App* rand = app.add_subcommand("rand", "random weights (T-RAND)");
  AddRandOptions(*rand, line.rand);
  AddDirectoryOptions(*rand, line);
  CLI::App* flat = app.add_subcommand("flat", "equal logits for some tokens (T-FLAT)");
  flat->add_option("--tokens", line.flat.tokens, "ids, all if absent")->delimiter(',');
  flat->add_option("--vocab", line.flat.vocab)->capture_default_str();
  flat->add_option("--context", line.flat.context)->capture_default_str();
  flat->add_option("--tokenizer-size", line.flat.tokenizer_size, "tokens, if not --vocab");
  AddWeights(*flat, line.flat.weights);
  for (CLI::App* command : {chain, rand, flat}) {
    command->add_option("--out", line.out, "file to write, or directory")->required();
  }
  CLI11_PARSE(app, argc, argv);
  const auto made = chain->parsed() ? Chain(line) : rand->parsed() ? Rand(line) : Flat(line);
  if (!made.ok()) {
    std::cerr << "make_tiny_model: " << made.error().message << "\n";
    return 1;
  }
  std::cout << made->dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace masu

int main(int argc, char** argv) { return masu::Main(argc, argv); }
