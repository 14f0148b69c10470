#include "testing/ptx/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace lockstep::ptx {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
}

// Words and signs of PTX; comments are skipped.
class Reader {
 public:
  Reader(const std::string& path, std::string_view text, std::size_t at, int line)
      : path_(path), text_(text), at_(at), line_(line) {}

  bool at_end() {
    skip();
    return at_ >= text_.size();
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("expected '{}'", c));
  }
  // A name, number, opcode or directive. "::" is part of an opcode, ":" ends a label.
  std::string_view word() {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      if (is_name(text_[at_])) {
        ++at_;
      } else if (text_.substr(at_, 2) == "::") {
        at_ += 2;
      } else {
        break;
      }
    }
    if (begin == at_) fail("expected a word");
    return text_.substr(begin, at_ - begin);
  }
  std::string_view rest_of_line() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find('\n', at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  void skip_past(char end) {
    while (at_ < text_.size() && text_[at_] != end) line_ += text_[at_++] == '\n' ? 1 : 0;
    if (end == '\n') ++line_;
    ++at_;
  }
  // Skips a block in braces, whose opening brace comes next.
  void skip_block() {
    expect('{');
    for (int depth = 1; depth > 0 && at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '{') ++depth;
      if (text_[at_] == '}') --depth;
    }
  }
  std::size_t at() const { return at_; }
  int line() const { return line_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw core::Error(core::Failure::usage, fmt::format("{}:{}: {}", path_, line_, what));
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                             text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        at_ = end;
      } else {
        return;
      }
    }
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_;
  int line_;
};

int bytes_of_type(std::string_view type) {
  if (type == ".pred") return 0;
  const std::size_t digits = type.find_first_of("0123456789");
  return std::atoi(std::string(type.substr(digits)).c_str()) / 8;
}

std::uint64_t number(Reader& reader, std::string_view word) {
  std::string digits(word);
  if (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u') && digits.substr(0, 2) != "0x")
    digits.pop_back();
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(digits.c_str(), &end, 0);
  if (*end != '\0' && *end != 'U') reader.fail(fmt::format("'{}' is not a number", word));
  return value;
}

// The declaration behind ".shared", ".global", ".local" and so on: .align 16 .b8 name[256] = {...};
Variable declaration(Reader& reader, Space space, bool external) {
  Variable variable{.name = {}, .space = space};
  std::string_view word = reader.word();
  while (word.front() == '.') {
    if (word == ".align") {
      variable.align = number(reader, reader.word());
    } else {
      variable.size_bytes = static_cast<std::size_t>(std::max(1, bytes_of_type(word)));
      variable.align = std::max(variable.align, variable.size_bytes);
    }
    word = reader.word();
  }
  variable.name = word;
  if (reader.take('[')) {
    if (reader.take(']')) {
      variable.dynamic = external;
      variable.size_bytes = 0;
    } else {
      variable.size_bytes *= number(reader, reader.word());
      reader.expect(']');
    }
  }
  if (reader.take('=')) {
    const auto elem = variable.size_bytes;
    if (reader.take('{')) {
      std::vector<std::uint64_t> values;
      do {
        values.push_back(number(reader, reader.word()));
      } while (reader.take(','));
      reader.expect('}');
      const std::size_t bytes = elem / std::max<std::size_t>(1, values.size());
      for (std::uint64_t value : values) {
        for (std::size_t i = 0; i < bytes; ++i) variable.initial.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
      }
    } else {
      const std::uint64_t value = number(reader, reader.word());
      for (std::size_t i = 0; i < elem; ++i) variable.initial.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
  }
  return variable;
}

class EntryReader {
 public:
  EntryReader(Reader reader, Entry& entry) : reader_(reader), entry_(entry) {}

  void read() {
    parameters();
    while (reader_.peek() != '{') directive();
    reader_.expect('{');
    scopes_.emplace_back();
    while (!scopes_.empty()) statement();
    define_halves();
  }

 private:
  // Compilers build words of which they need one half, and mask out the other: a register that nothing writes. That
  // half becomes an arbitrary number, so that a value which depends on it is a wrong result and not an undefined one.
  void define_halves() {
    constexpr std::uint64_t kArbitrary = 0x7fa5;
    std::vector<bool> written(entry_.registers.size());
    for (const Instruction& one : entry_.instructions) {
      if (one.operands.empty()) continue;
      const Operand& to = one.operands.front();
      if (to.reg >= 0) written[static_cast<std::size_t>(to.reg)] = true;
      for (const Operand& part : to.parts) {
        if (part.reg >= 0) written[static_cast<std::size_t>(part.reg)] = true;
      }
    }
    for (Instruction& one : entry_.instructions) {
      if (one.opcode != "mov.b32" || one.operands.size() != 2) continue;
      for (Operand& part : one.operands[1].parts) {
        if (part.reg >= 0 && !written[static_cast<std::size_t>(part.reg)])
          part = {.kind = Operand::Kind::immediate, .bits = kArbitrary};
      }
    }
  }

  void parameters() {
    if (!reader_.take('(')) return;
    std::size_t offset = 0;
    while (!reader_.take(')')) {
      if (reader_.word() != ".param") reader_.fail("expected .param");
      const Variable one = declaration(reader_, Space::param, false);
      offset = aligned(offset, one.align);
      entry_.parameters.push_back({one.name, offset, one.size_bytes});
      offset += one.size_bytes;
      reader_.take(',');
    }
  }

  void directive() {
    const std::string_view name = reader_.word();
    int product = 1;
    do {
      product *= static_cast<int>(number(reader_, reader_.word()));
    } while (reader_.take(','));
    if (name == ".maxntid" || name == ".reqntid") entry_.most_threads = product;
  }

  void statement() {
    if (reader_.take('{')) {
      scopes_.emplace_back();
      return;
    }
    if (reader_.take('}')) {
      scopes_.pop_back();
      return;
    }
    if (reader_.take(';')) return;
    if (reader_.peek() == '@') {
      reader_.expect('@');
      Instruction instruction;
      instruction.guard_negated = reader_.take('!');
      instruction.guard = register_named(reader_.word());
      rest_of(std::move(instruction), reader_.word());
      return;
    }
    const std::string_view word = reader_.word();
    if (word == ".loc") {
      location(reader_.rest_of_line());
    } else if (word == ".reg") {
      declare_registers();
    } else if (word == ".shared" || word == ".local") {
      entry_.variables.push_back(declaration(reader_, word == ".shared" ? Space::shared : Space::local, false));
      reader_.expect(';');
    } else if (word.front() == '.') {
      reader_.skip_past(';');  // .pragma, .param of calls
    } else if (reader_.take(':')) {
      entry_.labels.emplace(std::string(word), static_cast<int>(entry_.instructions.size()));
    } else {
      rest_of(Instruction{}, word);
    }
  }

  void location(std::string_view rest) {
    std::istringstream words{std::string(rest)};
    SourceLine read;
    words >> read.file >> read.line;
    if (read.line > 0) source_ = read;
  }

  void declare_registers() {
    const int bytes = bytes_of_type(reader_.word());
    do {
      const std::string name(reader_.word());
      if (reader_.take('<')) {
        const auto count = number(reader_, reader_.word());
        reader_.expect('>');
        for (std::uint64_t i = 0; i < count; ++i) add_register(name + std::to_string(i), bytes);
      } else {
        add_register(name, bytes);
      }
    } while (reader_.take(','));
    reader_.expect(';');
  }
  void add_register(std::string name, int bytes) {
    scopes_.back()[std::move(name)] = static_cast<int>(entry_.registers.size());
    entry_.registers.push_back({bytes});
  }
  int find_register(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    }
    return -1;
  }
  int register_named(std::string_view name) {
    const int found = find_register(name);
    if (found < 0) reader_.fail(fmt::format("'{}' is not declared", name));
    return found;
  }

  void rest_of(Instruction instruction, std::string_view opcode) {
    instruction.opcode = opcode;
    instruction.line = reader_.line();
    instruction.source = source_;
    while (!reader_.take(';')) {
      instruction.operands.push_back(operand());
      if (reader_.take('|')) instruction.operands.push_back(operand());  // setp p|q, shfl d|p
      reader_.take(',');
    }
    entry_.instructions.push_back(std::move(instruction));
  }

  Operand operand() {
    if (reader_.take('{')) {
      Operand vector{.kind = Operand::Kind::vector};
      while (!reader_.take('}')) {
        vector.parts.push_back(operand());
        reader_.take(',');
      }
      return vector;
    }
    if (reader_.take('[')) return memory();
    if (reader_.take('!')) {
      Operand negated = operand();
      negated.negated = true;
      return negated;
    }
    const bool minus = reader_.take('-');
    return named(reader_.word(), minus);
  }

  Operand memory() {
    Operand result = operand();
    if (reader_.take('+')) {
      const bool minus = reader_.take('-');
      result.offset = static_cast<std::int64_t>(number(reader_, reader_.word())) * (minus ? -1 : 1);
    }
    if (result.kind == Operand::Kind::immediate) result.offset = static_cast<std::int64_t>(result.bits);
    while (reader_.take(',')) result.parts.push_back(operand());
    reader_.expect(']');
    result.kind = Operand::Kind::memory;
    return result;
  }

  Operand named(std::string_view word, bool minus) {
    if (word == "_") return {};
    if (const int found = find_register(word); found >= 0) return {.kind = Operand::Kind::reg, .reg = found};
    const bool is_hex_float = word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'd');
    if (is_hex_float) {
      const std::uint64_t bits = std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16);
      return {.kind = Operand::Kind::immediate, .bits = bits, .is_f32 = word[1] == 'f'};
    }
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) {
      const std::uint64_t value = number(reader_, word);
      return {.kind = Operand::Kind::immediate, .bits = minus ? ~value + 1 : value};
    }
    return {.kind = Operand::Kind::symbol, .symbol = std::string(word)};
  }

  Reader reader_;
  Entry& entry_;
  std::vector<std::map<std::string, int, std::less<>>> scopes_;
  SourceLine source_;
};

}  // namespace

std::size_t Entry::parameter_bytes() const {
  return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size_bytes;
}

std::size_t Entry::static_shared_bytes() const {
  std::size_t bytes = 0;
  for (const Variable& variable : variables) {
    if (variable.space == Space::shared && !variable.dynamic)
      bytes = aligned(bytes, variable.align) + variable.size_bytes;
  }
  return bytes;
}

std::string Entry::place_of(const Instruction& instruction) const {
  std::string text = fmt::format("PTX line {}", instruction.line);
  const auto file = static_cast<std::size_t>(instruction.source.file);
  if (instruction.source.line > 0 && file < files.size()) {
    text += fmt::format(", {}:{}", std::filesystem::path(files[file]).filename().string(), instruction.source.line);
  }
  return text;
}

Module Module::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw core::Error(core::Failure::usage, fmt::format("{}: cannot be read", path));
  std::ostringstream text;
  text << in.rdbuf();
  Module module;
  module.path_ = path;
  module.text_ = std::move(text).str();
  Reader reader(module.path_, module.text_, 0, 1);
  bool external = false;
  while (!reader.at_end()) {
    const std::string_view word = reader.word();
    if (word == ".extern") {
      external = true;
      continue;
    }
    if (word == ".visible" || word == ".weak" || word == ".common") continue;
    if (word == ".version" || word == ".target" || word == ".address_size") {
      reader.rest_of_line();
    } else if (word == ".file") {
      std::istringstream rest{std::string(reader.rest_of_line())};
      std::size_t index = 0;
      std::string name;
      rest >> index >> name;
      if (module.files_.size() <= index) module.files_.resize(index + 1);
      module.files_[index] = name.substr(1, name.find('"', 1) - 1);
    } else if (word == ".shared" || word == ".global" || word == ".const") {
      const Space space = word == ".shared" ? Space::shared : word == ".global" ? Space::global : Space::constant;
      module.variables_.push_back(declaration(reader, space, external));
      reader.expect(';');
    } else if (word == ".entry") {
      const std::string name(reader.word());
      const Span span{reader.at(), 0, reader.line()};
      while (reader.peek() != '{') reader.skip_past(reader.peek() == '(' ? ')' : '\n');
      reader.skip_block();
      module.names_.push_back(name);
      module.spans_[name] = {span.begin, reader.at(), span.line};
    } else if (word == ".section") {
      reader.word();
      reader.skip_block();
    } else {
      reader.fail(fmt::format("'{}' is not known at this place", word));
    }
    external = false;
  }
  return module;
}

std::shared_ptr<const Entry> Module::entry(std::string_view name) const {
  const auto found = spans_.find(name);
  if (found == spans_.end()) return nullptr;
  auto entry = std::make_shared<Entry>();
  entry->name = name;
  entry->files = files_;
  const Span& span = found->second;
  const std::string_view text = std::string_view(text_).substr(0, span.end);
  // Only module variables that the text names: shared ones take room in every block.
  const std::string_view body = text.substr(span.begin);
  for (const Variable& variable : variables_) {
    if (body.find(variable.name) != std::string_view::npos) entry->variables.push_back(variable);
  }
  EntryReader(Reader(path_, text, span.begin, span.line), *entry).read();
  return entry;
}

}  // namespace lockstep::ptx
