#include "trainer/data/corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/input_file.h"
#include "core/random.h"

namespace lockstep::trainer {

// ---- tokens in memory

namespace {

template <class T>
void widen(const void* data, std::size_t first, std::span<std::int32_t> to) {
  const T* const from = static_cast<const T*>(data) + first;
  std::transform(from, from + to.size(), to.begin(), [](T token) { return static_cast<std::int32_t>(token); });
}

}  // namespace

void TokenText::append(const Part& part) {
  if (part.count == 0) return;
  parts_.push_back(part);
  ends_.push_back(size() + part.count);
}

TokenText TokenText::part(std::size_t first, std::size_t count) const {
  LOCKSTEP_CHECK(first + count <= size(), "a part of the text");
  TokenText made;
  std::size_t begin = 0;
  for (const Part& part : parts_) {
    const std::size_t from = std::clamp(first, begin, begin + part.count);
    const std::size_t to = std::clamp(first + count, begin, begin + part.count);
    const auto* const data = static_cast<const std::byte*>(part.data);
    made.append({data + (from - begin) * static_cast<std::size_t>(part.width), to - from, part.width});
    begin += part.count;
  }
  return made;
}

void TokenText::copy(std::size_t first, std::span<std::int32_t> to) const {
  LOCKSTEP_CHECK(first + to.size() <= size(), "tokens of the text");
  auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; !to.empty(); ++at) {
    const Part& part = parts_[at];
    const std::size_t begin = ends_[at] - part.count;
    const std::span<std::int32_t> here = to.first(std::min(to.size(), ends_[at] - first));
    if (part.width == 1) widen<std::uint8_t>(part.data, first - begin, here);
    if (part.width == 2) widen<std::uint16_t>(part.data, first - begin, here);
    if (part.width == 4) widen<std::uint32_t>(part.data, first - begin, here);
    first += here.size();
    to = to.subspan(here.size());
  }
}

std::span<const std::uint8_t> TokenText::bytes() const {
  if (parts_.size() != 1 || parts_[0].width != 1) return {};
  return {static_cast<const std::uint8_t*>(parts_[0].data), parts_[0].count};
}

// ---- files of tokens

namespace {

using Header = std::array<std::int32_t, 256>;

struct Kind {
  std::int32_t magic;
  std::int32_t version;
  int width;  // bytes per token
};
constexpr Kind kNarrow{20240520, 1, 2};
constexpr Kind kWide{20240801, 7, 4};

template <class T>
std::string_view bytes_of(const T* data, std::size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

}  // namespace

std::optional<TokenText::Part> tokens_in(const std::string& file, std::span<const std::uint8_t> bytes) {
  Header header{};
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  std::memcpy(header.data(), bytes.data(), sizeof(Header));
  for (const Kind& kind : {kNarrow, kWide}) {
    if (header[0] != kind.magic) continue;
    if (header[1] != kind.version) {
      throw core::usage_error(file + ": version " + std::to_string(header[1]) +
                              " of a file of tokens; allowed: " + std::to_string(kind.version));
    }
    const std::size_t there = bytes.size() - sizeof(Header);
    const auto count = static_cast<std::size_t>(std::max(header[2], 0));
    if (header[2] < 0 || there != count * static_cast<std::size_t>(kind.width)) {
      throw core::usage_error(file + ": its header has " + std::to_string(header[2]) + " tokens of " +
                              std::to_string(kind.width) + " bytes, and " + std::to_string(there) +
                              " bytes follow it; allowed: as many as its header states");
    }
    return TokenText::Part{bytes.data() + sizeof(Header), count, kind.width};
  }
  return std::nullopt;
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t words)
    : path_(path), file_(path), narrow_(words <= 1 << 16) {
  const Header none{};
  file_.write(bytes_of(none.data(), none.size()));
}

void TokenFileWriter::write(std::span<const std::int32_t> tokens) {
  written_ += static_cast<std::int64_t>(tokens.size());
  if (written_ > std::numeric_limits<std::int32_t>::max()) {
    throw core::usage_error(path_ + ": more than 2147483647 tokens; allowed: as many a file");
  }
  if (!narrow_) return file_.write(bytes_of(tokens.data(), tokens.size()));
  std::vector<std::uint16_t> narrow(tokens.size());
  std::transform(tokens.begin(), tokens.end(), narrow.begin(),
                 [](std::int32_t token) { return static_cast<std::uint16_t>(token); });
  file_.write(bytes_of(narrow.data(), narrow.size()));
}

void TokenFileWriter::commit() {
  const Kind kind = narrow_ ? kNarrow : kWide;
  const Header header{kind.magic, kind.version, static_cast<std::int32_t>(written_)};
  file_.write_over_beginning(bytes_of(header.data(), header.size()));
  file_.commit();
}

// ---- the corpus

namespace {

struct MappedFile {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> bytes;
};

MappedFile map(const std::string& file) {
  try {
    const core::InputFile input(file);
    if (input.bytes() == 0) throw core::usage_error("cannot read " + file + ": it is empty");
    std::shared_ptr<const void> owner = input.mapped();
    const auto* const data = static_cast<const std::uint8_t*>(owner.get());
    return {std::move(owner), {data, static_cast<std::size_t>(input.bytes())}};
  } catch (const core::Error& error) {
    throw core::usage_error(error.what() + std::string("; allowed: a file of text that can be read"));
  }
}

std::string name_of(std::span<const std::string> files) {
  if (files.size() == 1) return files.front();
  return std::to_string(files.size()) + " files from " + files.front() + " on";
}

}  // namespace

Corpus::Corpus(std::string name, Text text, std::int64_t length)
    : name_(std::move(name)), owners_(std::move(text.owners)), text_(text.tokens), is_bytes_(text.is_bytes) {
  LOCKSTEP_CHECK(length > 0, "a sequence has at least one token");
  const auto sequence = static_cast<std::size_t>(length) + 1;  // includes the target of its last token
  if (text_.size() < 2 * sequence) {
    throw core::usage_error(name_ + " is too short: " + std::to_string(text_.size()) +
                            (is_bytes_ ? " bytes" : " tokens") + "; sequences of " + std::to_string(length) +
                            " tokens need at least " + std::to_string(2 * sequence) +
                            " (one sequence and its last target, for training and for validation)");
  }
  training_tokens_ = text_.size() - std::max(text_.size() / 10, sequence);
}

// Maps the files as they are, in order.
Corpus::Text Corpus::mapped(std::span<const std::string> files) {
  Text text;
  text.is_bytes = !tokens_in(files.front(), map(files.front()).bytes).has_value();
  for (const std::string& file : files) {
    MappedFile one = map(file);
    const std::optional<TokenText::Part> tokens = tokens_in(file, one.bytes);
    if (tokens.has_value() == text.is_bytes) {
      throw core::usage_error(file + (text.is_bytes ? " has tokens, and " : " has no tokens, and ") + files.front() +
                              (text.is_bytes ? " is text" : " has") + "; allowed: files of one kind");
    }
    text.tokens.append(tokens.value_or(TokenText::Part{one.bytes.data(), one.bytes.size(), 1}));
    text.owners.push_back(std::move(one.owner));
  }
  return text;
}

std::string Corpus::read_files(std::span<const std::string> files, const Tokenizer& tokenizer,
                               const Encoder::Sink& sink) {
  const Text text = mapped(files);
  if (text.is_bytes && !tokenizer.is_bytes()) {
    Encoder encoder(tokenizer);
    for (const std::string& file : files) {
      const MappedFile one = map(file);
      sink(tokenizer.before());
      encoder.encode({reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size()}, sink);
      sink(tokenizer.after());
    }
    return name_of(files);
  }
  std::vector<std::int32_t> some(std::size_t{1} << 16);
  for (std::size_t at = 0; at < text.tokens.size(); at += some.size()) {
    some.resize(std::min(some.size(), text.tokens.size() - at));
    text.tokens.copy(at, some);
    sink(some);
  }
  return name_of(files);
}

Corpus Corpus::of_files(std::span<const std::string> files, std::int64_t length, const Tokenizer& tokenizer) {
  LOCKSTEP_CHECK(!files.empty(), "a corpus of no file");
  Text text = mapped(files);
  if (text.is_bytes && !tokenizer.is_bytes()) {
    const auto tokens = std::make_shared<std::vector<std::int32_t>>();
    read_files(files, tokenizer,
               [&](std::span<const std::int32_t> some) { tokens->insert(tokens->end(), some.begin(), some.end()); });
    text = {.owners = {tokens}, .is_bytes = false};
    text.tokens.append({tokens->data(), tokens->size(), 4});
  }
  return {name_of(files), std::move(text), length};
}

Corpus Corpus::synthetic(std::uint64_t seed, std::int64_t bytes, std::int64_t length) {
  const auto made = std::make_shared<const std::vector<std::uint8_t>>(synthetic_text(seed, bytes));
  return {"synthetic", {.owners = {made}, .tokens = TokenText(*made)}, length};
}

// ---- the synthetic text

namespace {

constexpr std::string_view kLetters = "etaoinshrdlu ,.\n";
constexpr std::uint64_t kNumLetters = kLetters.size();

// Numbers of three different letters: a frequent one and two less frequent ones.
std::array<std::uint64_t, 3> followers(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  core::Random random(core::hash64(seed, a, b));
  const std::uint64_t first = random.below(kNumLetters);
  const std::uint64_t second = 1 + random.below(kNumLetters - 1);  // distance from the first
  const std::uint64_t among_the_rest = 1 + random.below(kNumLetters - 2);
  const std::uint64_t third = among_the_rest + (among_the_rest >= second ? 1 : 0);
  return {first, (first + second) % kNumLetters, (first + third) % kNumLetters};
}

using Table = std::array<std::array<std::array<std::uint64_t, 3>, kNumLetters>, kNumLetters>;

Table table_of(std::uint64_t seed) {
  Table table{};
  for (std::uint64_t a = 0; a < kNumLetters; ++a) {
    for (std::uint64_t b = 0; b < kNumLetters; ++b) table.at(a).at(b) = followers(seed, a, b);
  }
  return table;
}

}  // namespace

std::vector<std::uint8_t> synthetic_text(std::uint64_t seed, std::int64_t bytes) {
  constexpr std::array<std::size_t, 4> kWhich = {0, 0, 1, 2};
  const Table table = table_of(seed);
  core::Random random(core::hash64(seed, kNumLetters));
  std::vector<std::uint8_t> text(static_cast<std::size_t>(bytes));
  std::uint64_t before = 0;
  std::uint64_t last = 0;
  for (std::uint8_t& letter : text) {
    const std::uint64_t next = table.at(before).at(last).at(kWhich.at(random.below(kWhich.size())));
    letter = static_cast<std::uint8_t>(kLetters[next]);
    before = last;
    last = next;
  }
  return text;
}

// ---- baselines

namespace {

using ByWord = std::vector<double>;

std::size_t index_of(std::int32_t token) {
  return static_cast<std::size_t>(token);
}

ByWord unigram(Tokens text, std::int64_t words) {
  ByWord all(static_cast<std::size_t>(words), 1.0);
  for (const std::int32_t token : text) all.at(index_of(token)) += 1;
  for (double& p : all) p /= static_cast<double>(text.size()) + static_cast<double>(words);
  return all;
}

double mean_nats(Tokens text, const std::function<double(std::int32_t before, std::int32_t token)>& probability) {
  LOCKSTEP_CHECK(text.size() > 1, "a text of two tokens at least");
  double sum = 0;
  for (std::size_t k = 1; k < text.size(); ++k) sum -= std::log(probability(text[k - 1], text[k]));
  return sum / static_cast<double>(text.size() - 1);
}

class PairCounts {
 public:
  PairCounts(Tokens text, std::int64_t words) : before_(static_cast<std::size_t>(words)) {
    for (std::size_t k = 1; k < text.size(); ++k) {
      pairs_[key_of(text[k - 1], text[k])] += 1;
      before_.at(index_of(text[k - 1])) += 1;
    }
  }

  double of(std::int32_t a, std::int32_t b) const {
    const auto found = pairs_.find(key_of(a, b));
    return found == pairs_.end() ? 0 : found->second;
  }
  double before(std::int32_t a) const { return before_.at(index_of(a)); }  // how often a token is followed by another

 private:
  static std::uint64_t key_of(std::int32_t a, std::int32_t b) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U | static_cast<std::uint32_t>(b);
  }
  std::unordered_map<std::uint64_t, double> pairs_;
  ByWord before_;
};

}  // namespace

double unigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words) {
  const ByWord all = unigram(training, words);
  return mean_nats(validation, [&](std::int32_t, std::int32_t token) { return all.at(index_of(token)); });
}

double bigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words) {
  const PairCounts counts(training, words);
  const auto even_odds = static_cast<double>(words);
  const auto entropy = [&](double weight, const ByWord& prior) {
    return mean_nats(validation, [&](std::int32_t a, std::int32_t b) {
      return (counts.of(a, b) + weight * prior.at(index_of(b))) / (counts.before(a) + weight);
    });
  };
  return std::min(entropy(8, unigram(training, words)),
                  entropy(even_odds, ByWord(static_cast<std::size_t>(words), 1 / even_odds)));
}

// ---- the sequences of a step

namespace {

// Number of positions at which a sequence and its last target fit.
std::int64_t num_places(std::int64_t text_tokens, std::int64_t length) {
  LOCKSTEP_CHECK(length > 0 && text_tokens > length, "the text is shorter than a sequence and its last target");
  return text_tokens - length;
}

void fill(const TokenText& text, std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
          const std::function<std::int64_t(std::int64_t row)>& begin_of) {
  const auto columns = static_cast<std::size_t>(length);
  LOCKSTEP_CHECK(tokens.size() == targets.size() && tokens.size() % columns == 0, "rows are whole sequences");
  for (std::size_t row = 0; row * columns < tokens.size(); ++row) {
    const auto begin = static_cast<std::size_t>(begin_of(static_cast<std::int64_t>(row)));
    text.copy(begin, tokens.subspan(row * columns, columns));
    text.copy(begin + 1, targets.subspan(row * columns, columns));
  }
}

}  // namespace

std::int64_t sample_begin(std::uint64_t seed, std::int64_t step, std::int64_t sample, std::int64_t text_tokens,
                          std::int64_t length) {
  const auto places = static_cast<std::uint64_t>(num_places(text_tokens, length));
  const std::uint64_t drawn = core::hash64(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(sample));
  return static_cast<std::int64_t>(drawn % places);  // the bias is below places / 2^64
}

std::int64_t max_windows(std::int64_t text_tokens, std::int64_t length) {
  num_places(text_tokens, length);
  return (text_tokens - 1) / length;
}

std::int64_t window_begin(std::int64_t window, std::int64_t windows, std::int64_t text_tokens, std::int64_t length) {
  LOCKSTEP_CHECK(0 <= window && window < windows, "no such window");
  const std::int64_t last_place = num_places(text_tokens, length) - 1;
  return windows == 1 ? 0 : last_place / (windows - 1) * window + last_place % (windows - 1) * window / (windows - 1);
}

void draw_samples(const TokenText& text, std::uint64_t seed, std::int64_t step, std::int64_t first_sample,
                  std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto text_tokens = static_cast<std::int64_t>(text.size());
  fill(text, length, tokens, targets,
       [&](std::int64_t row) { return sample_begin(seed, step, first_sample + row, text_tokens, length); });
}

void take_windows(const TokenText& text, std::int64_t first_window, std::int64_t windows, std::int64_t length,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto text_tokens = static_cast<std::int64_t>(text.size());
  fill(text, length, tokens, targets,
       [&](std::int64_t row) { return window_begin(first_window + row, windows, text_tokens, length); });
}

}  // namespace lockstep::trainer
