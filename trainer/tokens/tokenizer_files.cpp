// Files of Hugging Face's tokenizers: tokenizer.json (https://github.com/huggingface/tokenizers), and vocab.json with
// merges.txt, as published with GPT-2.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/options.h"
#include "core/record_json.h"
#include "trainer/tokens/tokenizer.h"

namespace lockstep::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLongValue = 80;  // characters of a field that a message quotes

// One line: `why` quotes texts of the file, which may have control characters.
core::Error refused(const std::string& file, std::string why) {
  std::replace_if(
      why.begin(), why.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return core::usage_error(file + ": " + why);
}

std::string text_of(const std::string& file) {
  return core::text_of_file(file, "tokenizer.json, or vocab.json with merges.txt");
}

json json_of(const std::string& file) {
  constexpr const char* kAllowed = "; allowed: tokenizer.json, or vocab.json with merges.txt";
  const std::string text = text_of(file);
  json parsed;
  try {
    parsed = core::parse_json(text, file);
  } catch (const core::Error& error) {
    throw core::usage_error(error.what() + std::string(kAllowed));
  }
  if (!parsed.is_object()) throw refused(file, std::string("is not a JSON object") + kAllowed);
  return parsed;
}

// Vocabularies write a byte as a visible character: itself if it is one of Latin-1's, otherwise one from U+0100 on
// (https://github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode).
std::array<std::int32_t, 0x144> bytes_of_characters() {
  std::array<std::int32_t, 0x144> byte_of{};
  byte_of.fill(-1);
  std::size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool seen = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    byte_of.at(seen ? static_cast<std::size_t>(byte) : next++) = byte;
  }
  return byte_of;
}

// Returns the bytes that a word of a vocabulary encodes, if each of its characters encodes a byte.
std::optional<std::string> bytes_of(std::string_view written) {
  static const auto kByteOf = bytes_of_characters();
  std::string bytes;
  for (std::size_t at = 0; at < written.size();) {
    std::size_t code = static_cast<unsigned char>(written[at++]);
    if (code >= 0x80) {  // in UTF-8, all of these characters have one or two bytes
      const std::size_t next = at < written.size() ? static_cast<unsigned char>(written[at++]) : 0;
      if ((code & 0xE0U) != 0xC0 || (next & 0xC0U) != 0x80) return std::nullopt;
      code = (code & 0x1FU) << 6U | (next & 0x3FU);
    }
    if (code >= kByteOf.size() || kByteOf.at(code) < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf.at(code)));
  }
  return bytes;
}

// Fields of tokenizer.json by the object that has them, as tokenizers 0.23.3 writes them. `allowed`: a list of the
// values that leave the tokens as they are; empty for fields that are read, or that no token depends on.
struct Fields {
  std::string_view object;
  std::string_view names;  // separated by blanks
  std::string_view allowed;
};
constexpr std::array<Fields, 23> kFields{{
    {"tokenizer", "added_tokens pre_tokenizer post_processor decoder model padding", ""},
    {"tokenizer", "version", R"([null, "1.0"])"},
    {"tokenizer", "truncation", "[null]"},
    {"tokenizer", "normalizer", R"([null, {"type": "Sequence", "normalizers": []}])"},
    {"padding", "direction pad_id pad_type_id pad_token", ""},
    {"padding", "strategy", R"(["BatchLongest"])"},
    {"padding", "pad_to_multiple_of", "[null]"},
    {"model", "vocab merges ignore_merges unk_token fuse_unk byte_fallback", ""},  // all bytes are known
    {"model", "type", R"(["BPE"])"},
    {"model", "dropout", "[null, 0]"},
    {"model", "continuing_subword_prefix end_of_word_suffix", R"([null, ""])"},
    {"added token", "id content normalized special", ""},
    {"added token", "single_word lstrip rstrip", "[false]"},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", ""},
    {"Split", "type pattern", ""},
    {"Split", "behavior", R"(["Isolated"])"},
    {"Split", "invert", "[null, false]"},
    {"Sequence", "type pretokenizers processors", ""},
    {"TemplateProcessing", "type single pair special_tokens", ""},
    {"RobertaProcessing", "type sep cls trim_offsets add_prefix_space", ""},
    {"BertProcessing", "type sep cls", ""},
    // The fields of tokenizer_config.json that change the tokens of vocab.json.
    {"tokenizer_config", "do_lower_case add_bos_token add_eos_token", "[null, false]"},
    {"tokenizer_config", "tokenizer_class", R"([null, "GPT2Tokenizer", "GPT2TokenizerFast"])"},
}};

bool has_word(std::string_view words, std::string_view word) {
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

const Fields* fields_with(std::string_view object, std::string_view name) {
  const auto* const found = std::find_if(kFields.begin(), kFields.end(), [&](const Fields& fields) {
    return fields.object == object && has_word(fields.names, name);
  });
  return found == kFields.end() ? nullptr : found;
}

}  // namespace

class TokenizerReader {
 public:
  explicit TokenizerReader(std::string file) : file_(std::move(file)) { made_.name_ = file_; }

  Tokenizer read_gpt2(const std::string& merges_file) {
    made_.pattern_ = static_cast<int>(WordPattern::gpt2);
    read_vocabulary(json_of(file_));
    if (id_of("!</w>") >= 0 && id_of("~</w>") >= 0)  // each byte is there twice
      throw refused(file_, "its words end in </w>; allowed: vocabularies without end_of_word_suffix");
    std::vector<std::pair<std::string, std::string>> merges;
    std::istringstream lines(text_of(merges_file));
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line.rfind("#version", 0) == 0) continue;
      merges.push_back(merge_of(merges_file, line));
    }
    read_merges(merges);
    read_neighbours(fs::path(file_).parent_path());
    return std::move(made_);
  }

  Tokenizer read_json() {
    const json all = json_of(file_);
    const json none = json::object();
    const auto found = all.find("model");
    const json& model = found == all.end() ? none : *found;  // not copied: it may have 300,000 merges
    if (!model.is_object() || model.value("type", "BPE") != "BPE" || !model.contains("vocab") ||
        !model.contains("merges")) {
      throw refused(file_, "its model is not a byte-pair encoding; allowed: model.type BPE with vocab and merges");
    }
    check("tokenizer", all, "it");
    check("model", model, "model");
    check("padding", all.value("padding", json()), "padding");
    made_.whole_words_ = model.value("ignore_merges", false);
    read_words(all.value("pre_tokenizer", json()));
    read_vocabulary(model.at("vocab"));
    std::vector<std::pair<std::string, std::string>> merges;
    for (const json& merge : model.at("merges")) {
      if (merge.is_string() && merge.get<std::string>().rfind("#version", 0) == 0) continue;
      merges.push_back(merge.is_string() ? merge_of(file_, merge.get<std::string>())
                                         : std::pair{merge.at(0).get<std::string>(), merge.at(1).get<std::string>()});
    }
    read_merges(merges);
    auto next = static_cast<std::int32_t>(model.at("vocab").size());
    for (const json& added : all.value("added_tokens", json::array())) read_added(added, next);
    read_ends(all.value("post_processor", json()));
    const json decoder = all.value("decoder", json());
    if (!decoder.is_null()) check(one_of(decoder, "decoder", "ByteLevel"), decoder, "decoder");
    return std::move(made_);
  }

 private:
  // Refuses a field that would change tokens, or that is not known. null and false leave a field off.
  void check(std::string_view object, const json& given, const std::string& shown) const {
    for (const auto& [name, value] : given.items()) {
      const Fields* const known = fields_with(object, name);
      if (known != nullptr && known->allowed.empty()) continue;
      const json allowed = known == nullptr ? json{nullptr, false} : json::parse(known->allowed);
      if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) continue;
      std::string what = shown;
      what.append(" has ").append(name).append(" ").append(value.dump().substr(0, kLongValue));
      throw refused(file_, what + (known == nullptr ? ", which is not known" : "") + "; allowed: " + allowed.dump());
    }
  }
  // The type of a step, if it is one of these.
  std::string one_of(const json& step, const std::string& what, std::string_view types) const {
    std::string type = step.value("type", "");
    if (!type.empty() && has_word(types, type)) return type;
    throw refused(file_, what + " " + type + " is not known; allowed: " + std::string(types));
  }

  static std::pair<std::string, std::string> merge_of(const std::string& file, const std::string& line) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) throw refused(file, "merge '" + line + "' has no blank between two tokens");
    return {line.substr(0, blank), line.substr(blank + 1)};
  }

  // Accepts {"type": "ByteLevel"} with GPT-2's words, or a sequence of {"type": "Split", "pattern": {"Regex": ...}} and
  // a ByteLevel without them.
  void read_words(const json& given) {
    std::vector<json> steps;
    if (given.is_object() && given.value("type", "") == "Sequence") {
      check("Sequence", given, "pre_tokenizer");
      for (const json& step : given.value("pretokenizers", json::array())) steps.push_back(step);
    } else if (given.is_object()) {
      steps.push_back(given);
    }
    std::optional<WordPattern> pattern;
    bool of_bytes = false;
    for (const json& step : steps) {
      const std::string type = one_of(step, "pre_tokenizer", "ByteLevel Split");
      check(type, step, "pre_tokenizer " + type);
      if (of_bytes || (type == "Split" && pattern)) {
        throw refused(file_, "pre_tokenizer has a further " + type + "; allowed: one Split and then one ByteLevel");
      }
      if (type == "Split") {
        pattern = pattern_of(step.value("pattern", json::object()));
        continue;
      }
      of_bytes = true;
      made_.leads_with_blank_ = step.value("add_prefix_space", true);
      const bool cuts = step.value("use_regex", true);
      if (pattern && (cuts || made_.leads_with_blank_)) {
        throw refused(file_, "ByteLevel after Split changes words; allowed: use_regex and add_prefix_space false");
      }
      if (cuts) pattern = WordPattern::gpt2;
    }
    if (!of_bytes || !pattern)
      throw refused(
          file_,
          "its words are not cut as GPT-2's or Llama 3's; allowed: pre_tokenizer ByteLevel, or Split and ByteLevel");
    made_.pattern_ = static_cast<int>(*pattern);
  }
  WordPattern pattern_of(const json& pattern) const {
    for (const WordPattern one : {WordPattern::gpt2, WordPattern::llama3}) {
      if (pattern == json{{"Regex", expression_of(one)}}) return one;
    }
    throw refused(file_, "words are cut by " + pattern.dump() + "; allowed: the expressions of GPT-2 and of Llama 3");
  }

  // Tokens that a post-processor puts around the text.
  void read_ends(const json& step) {
    if (step.is_null()) return;
    const std::string type =
        one_of(step, "post_processor", "ByteLevel Sequence TemplateProcessing RobertaProcessing BertProcessing");
    check(type, step, "post_processor " + type);
    std::vector<std::int32_t> before, after;
    if (type == "Sequence") {
      for (const json& part : step.at("processors")) read_ends(part);
    } else if (type == "TemplateProcessing") {
      int texts = 0;
      for (const json& piece : step.at("single")) {
        if (piece.contains("Sequence") && ++texts > 0) continue;
        const auto name = piece.at("SpecialToken").at("id").get<std::string>();
        for (const json& id : step.at("special_tokens").at(name).at("ids")) {
          (texts == 0 ? before : after).push_back(known_id(id));
        }
      }
      if (texts != 1) throw refused(file_, "post_processor has the text other than once; allowed: once in single");
    } else if (type != "ByteLevel") {
      before.push_back(known_id(step.at("cls").at(1)));
      after.push_back(known_id(step.at("sep").at(1)));
    }
    if (before.empty() && after.empty()) return;
    if (!made_.before_.empty() || !made_.after_.empty())
      throw refused(file_, "two steps of its post_processor add tokens; allowed: one");
    made_.before_ = std::move(before);
    made_.after_ = std::move(after);
  }
  std::int32_t known_id(const json& value) const {
    const std::int32_t id = id_in(value);
    if (id < made_.size()) return id;
    throw refused(file_, "post_processor adds token " + std::to_string(id) + "; allowed: ids of the vocabulary");
  }

  // Files of the same folder that change the tokens of vocab.json and merges.txt.
  void read_neighbours(const fs::path& folder) {
    const std::string more = (folder / "added_tokens.json").string();
    const std::string file = (folder / "tokenizer_config.json").string();
    const json config = fs::exists(file) ? json_of(file) : json::object();
    const json added = config.value("added_tokens_decoder", json());
    if (added.is_null() && fs::exists(more))
      throw refused(more, "has tokens that vocab.json has not; allowed: tokenizer.json, which has all");
    json known = json::object();  // the others are of other kinds
    for (const auto& [name, value] : config.items()) {
      if (fields_with("tokenizer_config", name) != nullptr) known[name] = value;
    }
    check("tokenizer_config", known, "tokenizer_config.json");
    made_.leads_with_blank_ = config.value("add_prefix_space", false);
    for (const auto& [id, token] : added.items()) {
      json object = token;
      object["id"] = json::parse(id);
      std::int32_t next = id_in(object.at("id"));
      read_added(object, next);
    }
  }

  // The ids decide how much memory the vocabulary takes.
  std::int32_t id_in(const json& value) const {
    constexpr std::int64_t kMost = (1 << 20) - 1;
    if (const auto id = core::integer_in(value, 0, kMost)) return static_cast<std::int32_t>(*id);
    throw refused(file_, "token id " + value.dump() + "; allowed: 0 to " + std::to_string(kMost));
  }

  void put(const std::string& bytes, std::int32_t id) {
    if (static_cast<std::size_t>(id) >= made_.bytes_of_.size())
      made_.bytes_of_.resize(static_cast<std::size_t>(id) + 1);
    made_.bytes_of_[static_cast<std::size_t>(id)] = bytes;
  }

  void read_vocabulary(const json& vocabulary) {
    if (!vocabulary.is_object()) throw refused(file_, "its vocabulary is not a JSON object of ids");
    for (const auto& [written, id] : vocabulary.items()) {
      const std::optional<std::string> bytes = bytes_of(written);
      if (!bytes) throw refused(file_, "token '" + written + "' is not written in GPT-2's characters for bytes");
      made_.ids_.emplace(*bytes, id_in(id));
      put(*bytes, id_in(id));
    }
  }

  std::int32_t id_of(const std::string& bytes) const {
    const auto found = made_.ids_.find(bytes);
    return found == made_.ids_.end() ? -1 : found->second;
  }

  void read_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
    std::array<std::int32_t, 256> id_of_byte{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
      id_of_byte[byte] = id_of(std::string(1, static_cast<char>(byte)));
      if (id_of_byte[byte] < 0)
        throw refused(file_, "byte " + std::to_string(byte) + " is not a token; allowed: vocabularies with all 256");
    }
    std::vector<BytePairs::Merge> joins;
    for (const auto& [left, right] : merges) {
      const std::optional<std::string> left_bytes = bytes_of(left);
      const std::optional<std::string> right_bytes = bytes_of(right);
      const BytePairs::Merge join{left_bytes ? id_of(*left_bytes) : -1, right_bytes ? id_of(*right_bytes) : -1,
                                  left_bytes && right_bytes ? id_of(*left_bytes + *right_bytes) : -1};
      if (join.left < 0 || join.right < 0 || join.joined < 0) {
        throw refused(file_, std::string("merge '").append(left).append(" ").append(right) +
                                 "' has or makes something that is not a token");
      }
      joins.push_back(join);
    }
    made_.pairs_ = BytePairs(id_of_byte, joins);
  }

  // `next`: the id that tokenizers gives to the next token that is not in the vocabulary.
  void read_added(const json& added, std::int32_t& next) {
    const std::string content = added.value("content", "");
    if (content.empty()) throw refused(file_, "an added token has no content");
    check("added token", added, "added token '" + content + "'");
    const std::int32_t id = id_in(added.value("id", json()));
    const std::optional<std::string> bytes = bytes_of(content);
    const std::int32_t own = bytes ? id_of(*bytes) : -1;
    const std::int32_t theirs = own >= 0 ? own : next++;
    if (id != theirs) {
      throw refused(file_, "added token '" + content + "' has id " + std::to_string(id) +
                               "; allowed: " + std::to_string(theirs) + ", the vocabulary's, or the next one after it");
    }
    Tokenizer::AddedTokens& to = made_.added_[added.value("normalized", true) ? 1 : 0];
    put(content, id);
    to.all.push_back({content, id});
    to.begins[static_cast<unsigned char>(content.front())] = true;
    std::stable_sort(to.all.begin(), to.all.end(),
                     [](const auto& a, const auto& b) { return a.content.size() > b.content.size(); });
  }

  std::string file_;
  Tokenizer made_;
};

Tokenizer Tokenizer::of_file(const std::string& path) {
  try {
    fs::path file = path;
    if (fs::is_directory(file)) file /= fs::exists(file / "tokenizer.json") ? "tokenizer.json" : "vocab.json";
    if (file.filename() == "vocab.json") {
      return TokenizerReader(file.string()).read_gpt2((file.parent_path() / "merges.txt").string());
    }
    return TokenizerReader(file.string()).read_json();
  } catch (const json::exception& error) {
    throw refused(path, "is not as expected: " + core::reason_of(error));
  }
}

}  // namespace lockstep::trainer
