#include "trainer/tokens/tokenizer.h"

#include <algorithm>
#include <queue>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

constexpr std::int32_t kNone = -1;

// A token of the word in a linked list of the remaining ones.
struct Symbol {
  std::int32_t id;
  std::int32_t before;
  std::int32_t next;
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
  // A merge that is there twice has its last place, as in Hugging Face's tokenizers.
  for (const Merge& merge : merges) joins_[key_of(merge.left, merge.right)] = {rank++, merge.joined};
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
    if (left == kNone || at(left).next == kNone) return;
    const std::int32_t right_id = at(at(left).next).id;
    if (const Join* const join = find(at(left).id, right_id)) {
      candidates.push({join->rank, left, at(left).id, right_id, join->joined});
    }
  };
  for (std::int32_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = at(best.left);
    if (left.id != best.left_id || left.next == kNone || at(left.next).id != best.right_id) continue;
    Symbol& right = at(left.next);
    left.id = best.joined;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) at(left.next).before = best.left;
    consider(left.before);
    consider(best.left);
  }
  for (std::int32_t i = count > 0 ? 0 : kNone; i != kNone; i = at(i).next) to.push_back(at(i).id);
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

const Tokenizer::Added* Tokenizer::AddedTokens::at(std::string_view text, std::size_t at) const {
  if (!begins[static_cast<unsigned char>(text[at])]) return nullptr;
  const auto found = std::find_if(all.begin(), all.end(), [&](const Added& added) {
    return text.substr(at, added.content.size()) == added.content;
  });
  return found == all.end() ? nullptr : &*found;
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
  encode_added(text, 0, sink);
  give(1, sink);
}

void Encoder::encode_added(std::string_view text, std::size_t normalized, const Sink& sink) {
  const auto encode_rest = [&](std::string_view rest) {
    normalized == 0 ? encode_added(rest, 1, sink) : encode_between(rest, sink);
  };
  std::size_t begin = 0;  // start of the text that is not encoded yet
  for (std::size_t at = 0; at < text.size();) {
    const Tokenizer::Added* const added = tokenizer_.added_[normalized].at(text, at);
    if (added == nullptr) {
      ++at;
      continue;
    }
    encode_rest(text.substr(begin, at - begin));
    waiting_.push_back(added->id);
    at += added->content.size();
    begin = at;
  }
  encode_rest(text.substr(begin));
}

void Encoder::encode_between(std::string_view text, const Sink& sink) {
  if (text.empty()) return;
  const auto pattern = static_cast<WordPattern>(tokenizer_.pattern_);
  std::string led;
  if (tokenizer_.leads_with_blank_ && text.front() != ' ') {
    led = " " + std::string(text);
    text = led;
  }
  for_each_word(pattern, text, [&](std::string_view word) {
    encode_word(word);
    give(kGiven, sink);
  });
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

}  // namespace lockstep::trainer
