#include "trainer/tokens/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <queue>
#include <sstream>

#include "core/error.h"
#include "core/record_json.h"
#include "core/user_text.h"

namespace lockstep::trainer {
namespace {

constexpr std::int32_t kNone = -1;

// A token of the word in a linked list of the remaining ones.
struct Symbol {
  std::int32_t id;
  std::int32_t before;
  std::int32_t behind;
};

// Two neighbours that may be merged. Outdated if either has been merged with another one since.
struct Candidate {
  std::int32_t rank;
  std::int32_t left;  // index
  std::int32_t left_id;
  std::int32_t right_id;
  std::int32_t joined;
  bool operator<(const Candidate& other) const {  // the queue's top is the largest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

BytePairs::BytePairs(const std::array<std::int32_t, 256>& id_of_byte, std::span<const Merge> merges)
    : id_of_byte_(id_of_byte) {
  joins_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const Merge& merge : merges) joins_.try_emplace(key_of(merge.left, merge.right), Join{rank++, merge.joined});
}

const BytePairs::Join* BytePairs::find(std::int32_t left, std::int32_t right) const {
  const auto found = joins_.find(key_of(left, right));
  return found == joins_.end() ? nullptr : &found->second;
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& to) const {
  const auto count = static_cast<std::int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  const auto at = [&](std::int32_t place) -> Symbol& { return symbols[static_cast<std::size_t>(place)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    at(i) = {id_of_byte_[byte], i - 1, i + 1 < count ? i + 1 : kNone};
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::int32_t left) {
    if (left == kNone || at(left).behind == kNone) return;
    const std::int32_t right_id = at(at(left).behind).id;
    if (const Join* const join = find(at(left).id, right_id)) {
      candidates.push({join->rank, left, at(left).id, right_id, join->joined});
    }
  };
  for (std::int32_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = at(best.left);
    if (left.id != best.left_id || left.behind == kNone || at(left.behind).id != best.right_id) continue;
    Symbol& right = at(left.behind);
    left.id = best.joined;
    left.behind = right.behind;
    right.id = kNone;
    if (left.behind != kNone) at(left.behind).before = best.left;
    consider(left.before);
    consider(best.left);
  }
  for (std::int32_t i = count > 0 ? 0 : kNone; i != kNone; i = at(i).behind) to.push_back(at(i).id);
}

// ---- tokenizers

namespace {

constexpr std::size_t kMostKnownWords = 1U << 20U;
constexpr std::size_t kLongWord = 64;      // bytes; longer words are not cached
constexpr std::size_t kGiven = 1U << 14U;  // tokens per call of the sink

}  // namespace

Tokenizer Tokenizer::bytes() {
  Tokenizer made;
  for (int byte = 0; byte < 256; ++byte) made.bytes_of_.emplace_back(1, static_cast<char>(byte));
  return made;
}

const Tokenizer::Added* Tokenizer::added_at(std::string_view text, std::size_t at) const {
  if (!begins_added_[static_cast<unsigned char>(text[at])]) return nullptr;
  const auto found = std::find_if(added_.begin(), added_.end(),
                                  [&](const Added& one) { return text.substr(at, one.content.size()) == one.content; });
  return found == added_.end() ? nullptr : &*found;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  Encoder(*this).encode(
      text, [&](std::span<const std::int32_t> some) { tokens.insert(tokens.end(), some.begin(), some.end()); });
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    LOCKSTEP_CHECK(token >= 0 && token < size(), "a token of the vocabulary");
    text += bytes_of_[static_cast<std::size_t>(token)];
  }
  return text;
}

void Encoder::encode(std::string_view text, const Sink& sink) {
  if (tokenizer_.is_bytes()) {
    for (const char byte : text) {
      waiting_.push_back(static_cast<unsigned char>(byte));
      give(kGiven, sink);
    }
    return give(1, sink);
  }
  std::size_t begin = 0;  // start of the text that is not encoded yet
  for (std::size_t at = 0; at < text.size();) {
    const Tokenizer::Added* const added = tokenizer_.added_at(text, at);
    if (added == nullptr) {
      ++at;
      continue;
    }
    encode_between(text.substr(begin, at - begin), sink);
    waiting_.push_back(added->id);
    at += added->content.size();
    begin = at;
  }
  encode_between(text.substr(begin), sink);
  give(1, sink);
}

void Encoder::encode_between(std::string_view text, const Sink& sink) {
  if (text.empty()) return;
  const auto pattern = static_cast<WordPattern>(tokenizer_.pattern_);
  std::string led;
  if (tokenizer_.leads_with_blank_ && text.front() != ' ') {
    led = " " + std::string(text);
    text = led;
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = word_length(pattern, text, at);
    encode_word(text.substr(at, length));
    give(kGiven, sink);
    at += length;
  }
}

void Encoder::encode_word(std::string_view word) {
  if (const auto met = known_.find(word); met != known_.end()) {
    waiting_.insert(waiting_.end(), met->second.begin(), met->second.end());
    return;
  }
  const std::size_t before = waiting_.size();
  const auto whole = tokenizer_.whole_words_ ? tokenizer_.ids_.find(word) : tokenizer_.ids_.end();
  if (whole != tokenizer_.ids_.end()) {
    waiting_.push_back(whole->second);
  } else {
    tokenizer_.pairs_.encode(word, waiting_);
  }
  if (word.size() > kLongWord || known_.size() >= kMostKnownWords) return;
  known_.emplace(word,
                 std::vector<std::int32_t>(waiting_.begin() + static_cast<std::ptrdiff_t>(before), waiting_.end()));
}

void Encoder::give(std::size_t at_least, const Sink& sink) {
  if (waiting_.size() < at_least) return;
  sink(waiting_);
  waiting_.clear();
}

// ---- Files of Hugging Face's tokenizers: tokenizer.json (https://github.com/huggingface/tokenizers), and vocab.json
// with merges.txt, as published with GPT-2.

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

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
    const Character one = character_at(written, at);
    if (one.code >= kByteOf.size() || kByteOf.at(one.code) < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf.at(one.code)));
    at += one.bytes;
  }
  return bytes;
}

}  // namespace

class TokenizerReader {
 public:
  explicit TokenizerReader(std::string file) : file_(std::move(file)) { made_.name_ = file_; }

  Tokenizer read_gpt2(const std::string& merges_file) {
    made_.pattern_ = static_cast<int>(WordPattern::gpt2);
    read_vocabulary(json_of(file_));
    std::vector<std::pair<std::string, std::string>> merges;
    std::istringstream lines(text_of(merges_file));
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || (merges.empty() && line.rfind("#version", 0) == 0)) continue;
      merges.push_back(merge_of(merges_file, line));
    }
    read_merges(merges);
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
    if (!all.value("normalizer", json()).is_null()) throw refused(file_, "it has a normalizer; allowed: none");
    if (model.value("byte_fallback", false))
      throw refused(file_, "byte_fallback is true; allowed: vocabularies of bytes, as GPT-2's and Llama 3's");
    made_.whole_words_ = model.value("ignore_merges", false);
    read_words(all.value("pre_tokenizer", json()));
    read_vocabulary(model.at("vocab"));
    std::vector<std::pair<std::string, std::string>> merges;
    for (const json& merge : model.at("merges")) {
      merges.push_back(merge.is_string() ? merge_of(file_, merge.get<std::string>())
                                         : std::pair{merge.at(0).get<std::string>(), merge.at(1).get<std::string>()});
    }
    read_merges(merges);
    for (const json& added : all.value("added_tokens", json::array())) read_added(added);
    return std::move(made_);
  }

 private:
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
      for (const json& step : given.value("pretokenizers", json::array())) steps.push_back(step);
    } else if (given.is_object()) {
      steps.push_back(given);
    }
    std::optional<WordPattern> pattern;
    bool of_bytes = false;
    for (const json& step : steps) {
      const std::string type = step.value("type", "");
      if (type == "Split" && step.value("behavior", "Isolated") == "Isolated" && !step.value("invert", false)) {
        const json regex = step.value("pattern", json::object());
        pattern = pattern_of(regex.value("Regex", ""));
      } else if (type == "ByteLevel" && !of_bytes) {
        of_bytes = true;
        made_.leads_with_blank_ = step.value("add_prefix_space", true);
        const bool cuts = step.value("use_regex", true);
        if (pattern && (cuts || made_.leads_with_blank_)) {
          throw refused(file_, "ByteLevel behind Split changes words; allowed: use_regex and add_prefix_space false");
        }
        if (cuts) pattern = WordPattern::gpt2;
      } else {
        throw refused(file_, "pre_tokenizer " + type + " is not known; allowed: ByteLevel, and Split before it");
      }
    }
    if (!of_bytes || !pattern)
      throw refused(
          file_,
          "its words are not cut as GPT-2's or Llama 3's; allowed: pre_tokenizer ByteLevel, or Split and ByteLevel");
    made_.pattern_ = static_cast<int>(*pattern);
  }
  WordPattern pattern_of(const std::string& expression) const {
    for (const WordPattern one : {WordPattern::gpt2, WordPattern::llama3}) {
      if (expression == expression_of(one)) return one;
    }
    throw refused(file_, "words are cut by '" + expression + "'; allowed: the expressions of GPT-2 and of Llama 3");
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

  void read_added(const json& added) {
    const std::string content = added.value("content", "");
    if (content.empty()) throw refused(file_, "an added token has no content");
    for (const char* const flag : {"single_word", "lstrip", "rstrip"}) {
      if (added.value(flag, false))
        throw refused(file_, "added token '" + content + "' has " + flag + "; allowed: false");
    }
    const std::int32_t id = id_in(added.value("id", json()));
    put(content, id);
    made_.added_.push_back({content, id});
    made_.begins_added_[static_cast<unsigned char>(content.front())] = true;
    std::stable_sort(made_.added_.begin(), made_.added_.end(),
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
