// Products of matrices and what feeds them: mma.sync, ldmatrix and wgmma (PTX ISA 9.0, sections 9.7.14 and 9.7.15).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"
#include "testing/ptx/swizzle.h"

// Rows, columns and lanes are below 2^16.
// NOLINTBEGIN(bugprone-misplaced-widening-cast, bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::ptx {
namespace {

constexpr int kDepth = 16;  // depth of a product of 16-bit elements
constexpr int kRows = 16;   // rows of a warp's part

float element(Type type, std::uint32_t word, int half) {
  const auto bits = static_cast<std::uint16_t>(word >> (16 * half));
  return type == Type::bf16 ? core::to_float(core::BFloat16{bits}) : core::to_float(core::Float16{bits});
}

// Poison of rows of `a` and columns of `b`: a sum is poisoned if its row or column is.
struct Factors {
  std::array<std::array<float, kDepth>, kRows> a{};
  std::vector<float> b;  // [k][column]
  std::uint32_t poisoned_rows = 0;
};

// The layout of a warp's 16 x 16 factor in 4 registers, and of its sums (PTX ISA, figures of mma.m16n8k16): a lane has
// row lane / 4 and the row 8 further, columns 2 (lane % 4) and the next, and for registers 2 and 3 those 8 further.
void take_rows(const Warp& warp, const std::array<Slot, 4>& slots, Type type, Factors& factors) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      const auto word = static_cast<std::uint32_t>(warp.bits(slots[static_cast<std::size_t>(reg)], lane));
      const int row = lane / 4 + (reg % 2) * 8;
      const int k = 2 * (lane % 4) + (reg / 2) * 8;
      for (int half = 0; half < 2; ++half) {
        factors.a[static_cast<std::size_t>(row)][static_cast<std::size_t>(k + half)] = element(type, word, half);
      }
    }
  }
}

// sums[row][column] = a b, in f32; the order of additions is not specified.
std::vector<float> product_of(const Factors& factors, int columns) {
  std::vector<float> sums(static_cast<std::size_t>(kRows * columns));
  for (std::size_t row = 0; row < kRows; ++row) {
    float* const to = &sums[row * static_cast<std::size_t>(columns)];
    for (std::size_t k = 0; k < kDepth; ++k) {
      const float factor = factors.a[row][k];
      const float* const from = &factors.b[k * static_cast<std::size_t>(columns)];
      for (int n = 0; n < columns; ++n) to[n] += factor * from[n];
    }
  }
  return sums;
}

// Which element of the sums a lane has in register `reg` of 4 for each 8 columns.
struct At {
  int row;
  int column;
};
At sum_at(int lane, int reg) {
  return {lane / 4 + (reg % 4 / 2) * 8, reg / 4 * 8 + 2 * (lane % 4) + reg % 2};
}

bool multiply(Warp& warp, const Op& op, std::uint32_t /*lanes*/) {
  Factors factors;
  take_rows(warp, {op.from[0], op.from[1], op.from[2], op.from[3]}, op.from_type, factors);
  factors.b.resize(kDepth * 8);
  std::uint32_t rows = 0;     // poisoned
  std::uint32_t columns = 0;  // poisoned
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < 2; ++reg) {
      const auto word = static_cast<std::uint32_t>(warp.bits(op.from[static_cast<std::size_t>(4 + reg)], lane));
      for (int half = 0; half < 2; ++half) {
        const auto k = static_cast<std::size_t>(2 * (lane % 4) + reg * 8 + half);
        factors.b[k * 8 + static_cast<std::size_t>(lane / 4)] = element(op.from_type, word, half);
      }
      if ((warp.poison(op.from[static_cast<std::size_t>(4 + reg)]) >> lane & 1U) != 0) columns |= 1U << (lane / 4);
    }
    for (std::size_t reg = 0; reg < 4; ++reg) {
      if ((warp.poison(op.from[reg]) >> lane & 1U) != 0) rows |= 1U << (lane / 4 + static_cast<int>(reg % 2) * 8);
    }
  }
  const std::vector<float> sums = product_of(factors, 8);
  for (int reg = 0; reg < 4; ++reg) {
    const Slot from = op.from[static_cast<std::size_t>(6 + reg)];
    const Slot to = op.to[static_cast<std::size_t>(reg)];
    std::uint32_t poison = warp.poison(from);
    for (int lane = 0; lane < kLanes; ++lane) {
      const At at = sum_at(lane, reg);
      const float sum = warp.get<float>(from, lane) + sums[static_cast<std::size_t>(at.row * 8 + at.column)];
      warp.set<float>(to, lane, sum);
      if ((rows >> at.row & 1U) != 0 || (columns >> at.column & 1U) != 0) poison |= 1U << lane;
    }
    warp.poison(to) = poison;
    warp.wrote(to);
  }
  warp.block().launch.counts.products += 16 * 8 * 16;
  warp.meet();
  return true;
}

// ldmatrix: lane 8 i + r has the address of row r of matrix i; a lane gets two elements of each matrix.
bool load_matrices(Warp& warp, const Op& op, std::uint32_t lanes) {
  warp.require_defined(op.from[0], lanes, "an address");
  std::array<std::array<std::uint16_t, 8>, kLanes> rows{};
  std::uint32_t poison = 0;
  std::array<std::size_t, kLanes> offsets{};
  for (int lane = 0; lane < 8 * op.number; ++lane) {
    const Warp::Place place = warp.locate(Space::shared, warp.address(op, op.from[0], lane), 16, lane);
    warp.on_read(place, 16, lane, op);
    std::memcpy(rows[static_cast<std::size_t>(lane)].data(), place.data, 16);
    offsets[static_cast<std::size_t>(lane)] = place.offset;
    if (!place.shadow->is_initialized(place.offset, 16)) poison |= 1U << lane;
  }
  Counts& counts = warp.block().launch.counts;
  ++counts.shared_requests;
  for (int matrix = 0; matrix < op.number; ++matrix) {  // 8 rows of 16 bytes at a time: distinct pieces of 128 bytes
    std::array<int, 8> in_piece{};
    int most = 0;
    for (int row = 0; row < 8; ++row) {
      most = std::max(most, ++in_piece[offsets[static_cast<std::size_t>(8 * matrix + row)] / 16 % 8]);
    }
    counts.shared_wavefronts += static_cast<std::uint64_t>(most);
    ++counts.shared_wavefronts_least;
  }
  const bool transposed = op.detail == 1;
  for (int matrix = 0; matrix < op.number; ++matrix) {
    const Slot to = op.to[static_cast<std::size_t>(matrix)];
    std::uint32_t poisoned = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      std::uint32_t word = 0;
      for (int half = 0; half < 2; ++half) {
        const int row = 8 * matrix + (transposed ? 2 * (lane % 4) + half : lane / 4);
        const int column = transposed ? lane / 4 : 2 * (lane % 4) + half;
        word |= static_cast<std::uint32_t>(rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)])
                << (16 * half);
        if ((poison >> row & 1U) != 0) poisoned |= 1U << lane;
      }
      warp.set_bits(to, lane, word);
    }
    warp.poison(to) = poisoned;
    warp.wrote(to);
  }
  warp.meet();
  return true;
}

// --- wgmma ---

// PTX ISA, "Matrix descriptor format": where an element lies. Rows of the swizzle's width; in each group of 8 rows,
// pieces of 16 bytes are exchanged by the row's number.
struct Matrix {
  std::uint32_t start;
  std::uint32_t leading;
  std::uint32_t stride;
  int swizzle;  // 1: 128 bytes, 2: 64, 3: 32, 0: none

  explicit Matrix(std::uint64_t descriptor)
      : start(field(descriptor, 0)),
        leading(field(descriptor, 16)),
        stride(field(descriptor, 32)),
        swizzle(static_cast<int>(descriptor >> 62)) {}
  static std::uint32_t field(std::uint64_t descriptor, int bit) {
    return static_cast<std::uint32_t>(descriptor >> bit & 0x3fffU) << 4;
  }
  std::uint32_t row_bytes() const { return swizzle == 0 ? 16 : 256U >> swizzle; }
  // `along`: the row of a, or column of b; `depth`: its element.
  std::uint32_t address(std::uint32_t along, std::uint32_t depth, bool transposed) const {
    const std::uint32_t width = row_bytes() / 2;
    const std::uint32_t plain =
        transposed ? start + along / width * leading + along % width * 2 + depth / 8 * stride + depth % 8 * row_bytes()
        : swizzle == 0 ? start + along / 8 * stride + along % 8 * 16 + depth / 8 * leading + depth % 8 * 2
                       : start + along / 8 * stride + along % 8 * row_bytes() + depth * 2;
    return swizzled(plain, swizzle);
  }
};

std::uint16_t shared_element(const Block& block, std::uint32_t at) {
  std::uint16_t bits = 0;
  if (at + 2 <= block.shared.size()) std::memcpy(&bits, &block.shared[at], 2);
  return bits;
}

struct Product {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  bool a_in_registers = false;
  bool transposed_a = false;
  bool transposed_b = false;
  bool add = false;
  int columns = 0;
  Type type = Type::f16;
  std::array<Slot, 4> rows{};
};

// Reads of shared memory by a product, which may happen until it has been waited for.
void note_reads(Warp& warp, const Op& op, const Product& product) {
  const auto read = [&](std::uint64_t descriptor, std::uint32_t begin, std::uint32_t count, bool transposed) {
    const Matrix matrix(descriptor);
    for (std::uint32_t along = begin; along < begin + count; along += transposed ? 8 : 1) {
      for (std::uint32_t depth = 0; depth < kDepth; depth += transposed ? 1 : 8) {
        const Warp::Place place = warp.locate(Space::shared, matrix.address(along, depth, transposed), 16, 0);
        warp.on_product_read(place, 16, op);
      }
    }
  };
  const auto first_row = static_cast<std::uint32_t>(warp.index() % 4 * kRows);
  if (!product.a_in_registers) read(product.a, first_row, kRows, product.transposed_a);
  read(product.b, 0, static_cast<std::uint32_t>(product.columns), product.transposed_b);
}

void compute(Warp& warp, const Product& product, const std::vector<Slot>& to) {
  Factors factors;
  const Block& block = warp.block();
  const auto at = [&](const Matrix& matrix, std::uint32_t along, std::uint32_t depth, bool transposed) {
    return element(product.type, shared_element(block, matrix.address(along, depth, transposed)), 0);
  };
  if (product.a_in_registers) {
    take_rows(warp, product.rows, product.type, factors);
  } else {
    const Matrix a(product.a);
    const auto first_row = static_cast<std::uint32_t>(warp.index() % 4 * kRows);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      for (std::uint32_t k = 0; k < kDepth; ++k) factors.a[row][k] = at(a, first_row + row, k, product.transposed_a);
    }
  }
  const Matrix b(product.b);
  factors.b.resize(static_cast<std::size_t>(kDepth * product.columns));
  for (std::uint32_t k = 0; k < kDepth; ++k) {
    for (std::uint32_t n = 0; n < static_cast<std::uint32_t>(product.columns); ++n) {
      factors.b[k * static_cast<std::uint32_t>(product.columns) + n] = at(b, n, k, product.transposed_b);
    }
  }
  const std::vector<float> sums = product_of(factors, product.columns);
  for (std::size_t reg = 0; reg < to.size(); ++reg) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const At place = sum_at(lane, static_cast<int>(reg));
      const float sum = sums[static_cast<std::size_t>(place.row * product.columns + place.column)];
      warp.set<float>(to[reg], lane, product.add ? warp.get<float>(to[reg], lane) + sum : sum);
    }
  }
}

void check_fenced(Warp& warp, Slot slot) {
  if (warp.has_fenced_products && warp.stamp_of(slot) <= warp.fence_stamp) return;
  warp.fault("a register of this product was accessed after the last wgmma.fence");
}

bool begin_product(Warp& warp, const Op& op, std::uint32_t /*lanes*/) {
  Product product{.a_in_registers = op.detail == 1, .columns = op.number, .type = op.from_type};
  std::size_t next = 0;
  if (product.a_in_registers) {
    for (Slot& slot : product.rows) slot = op.from[next++];
    for (const Slot& slot : product.rows) {
      warp.require_defined(slot, kAllLanes, "a factor");
      check_fenced(warp, slot);
    }
  } else {
    warp.require_defined(op.from[next], kAllLanes, "a descriptor");
    product.a = warp.bits(op.from[next++], 0);
  }
  warp.require_defined(op.from[next], kAllLanes, "a descriptor");
  product.b = warp.bits(op.from[next++], 0);
  product.add = (warp.predicate(op.from[next++]) & 1U) != 0;
  next += 2;  // signs of a and b
  if (!product.a_in_registers) product.transposed_a = warp.bits(op.from[next++], 0) != 0;
  product.transposed_b = warp.bits(op.from[next], 0) != 0;
  const bool continues = std::any_of(warp.products.begin(), warp.products.end(), [&](const Warp::Product& earlier) {
    return earlier.sums.front().index == op.to.front().index;
  });
  for (const Slot& sum : op.to) {
    check_fenced(warp, sum);
    if (product.add && !continues) warp.require_defined(sum, kAllLanes, "a sum");
  }
  note_reads(warp, op, product);
  for (const Slot& sum : op.to) warp.poison(sum) = kAllLanes;
  warp.products.push_back({.compute = [&warp, product, to = op.to] { compute(warp, product, to); },
                           .sums = op.to,
                           .group = warp.product_groups,
                           .time = warp.product_time++,
                           .stamp = warp.now_stamp()});
  if (product.a_in_registers) {
    warp.products.back().factors.assign(product.rows.begin(), product.rows.end());
  }
  warp.block().launch.counts.products += static_cast<std::uint64_t>(kRows * kDepth * product.columns);
  if (warp.machine().random().below(2) == 0) warp.compute_products(1 + warp.machine().random().below(4));
  return true;
}

bool fence_products(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  warp.fence_stamp = warp.now_stamp();
  warp.has_fenced_products = true;
  return true;
}
bool commit_products(Warp& warp, const Op& /*op*/, std::uint32_t /*lanes*/) {
  ++warp.product_groups;
  return true;
}
bool wait_for_products(Warp& warp, const Op& op, std::uint32_t /*lanes*/) {
  warp.wait_for_products(static_cast<std::uint32_t>(op.number));
  warp.meet();
  return true;
}

bool decode_wgmma(Program& program, Op& op, const std::vector<std::string>& parts) {
  const auto& operands = op.text->operands;
  op.work = Work::tensor;
  op.meeting = Meeting::warp;
  if (parts[1] == "fence") {
    op.run = fence_products;
  } else if (parts[1] == "commit_group") {
    op.run = commit_products;
  } else if (parts[1] == "wait_group") {
    op.number = static_cast<int>(operands[0].bits);
    op.run = wait_for_products;
  } else if (parts[1] == "mma_async") {
    const std::string& shape = parts[4];  // m64n128k16
    const std::size_t n = shape.find('n');
    if (shape.substr(shape.find('k')) != "k16" || parts[5] != "f32") return false;
    op.number = std::stoi(shape.substr(n + 1));
    op.from_type = type_named(parts.back());
    for (const Operand& part : operands[0].parts) op.to.push_back(program.slot_of(part.reg));
    op.detail = operands[1].kind == Operand::Kind::vector ? 1 : 0;
    if (op.detail == 1) {
      for (const Operand& part : operands[1].parts) op.from.push_back(program.slot_of(part.reg));
    } else {
      op.from.push_back(program.value_of(operands[1], Type::u64));
    }
    op.from.push_back(program.value_of(operands[2], Type::u64));
    op.from.push_back(program.value_of(operands[3], Type::pred));
    for (std::size_t i = 4; i < operands.size(); ++i) op.from.push_back(program.value_of(operands[i], Type::s32));
    op.run = begin_product;
  }
  return op.run != nullptr;
}

}  // namespace

bool decode_tensor(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  const std::string& name = parts[0];
  const auto& operands = op.text->operands;
  if (name == "wgmma") return decode_wgmma(program, op, parts);
  if (name == "mma" && parts.size() > 3 && parts[3] == "m16n8k16" && parts[6] == "f32" &&
      (parts[7] == "f16" || parts[7] == "bf16")) {
    op.work = Work::tensor;
    op.meeting = Meeting::warp;
    op.from_type = type_named(parts[7]);
    for (const Operand& part : operands[0].parts) op.to.push_back(program.slot_of(part.reg));
    for (std::size_t i = 1; i < 4; ++i) {
      for (const Operand& part : operands[i].parts) op.from.push_back(program.value_of(part, Type::b32));
    }
    op.run = multiply;
    return true;
  }
  if (name == "ldmatrix") {
    op.work = Work::memory;
    op.meeting = Meeting::warp;
    op.space = Space::shared;
    op.number = parts[4][1] - '0';
    op.detail = std::find(parts.begin(), parts.end(), "trans") != parts.end() ? 1 : 0;
    if (operands[0].kind == Operand::Kind::vector) {
      for (const Operand& part : operands[0].parts) op.to.push_back(program.slot_of(part.reg));
    } else {
      op.to.push_back(program.slot_of(operands[0].reg));
    }
    op.from = {program.address_of(operands[1])};
    op.offset = operands[1].offset;
    op.run = load_matrices;
    return true;
  }
  return false;
}

// --- Parts of Warp ---

void Warp::on_product_read(const Place& place, std::size_t bytes, const Op& op) {
  if (!place.shadow->is_initialized(place.offset, bytes))
    fault("a product reads shared memory that nobody has written");
  if (!machine().options().check_races) return;
  Access mine = access_of(op, 0, Proxy::async);
  mine.warp = product_id();
  mine.time = product_time;
  place.shadow->for_cells(place.offset, bytes, [&](Shadow::Cell& cell) {
    if (cell.writer.is_in_flight != 0) fault("a product reads shared memory that an asynchronous copy may still write");
    if (cell.writer.warp != 0) check_pair(cell.writer, 0, op, Proxy::async, "reads", "wrote", place.space);
    for (Access& reader : cell.readers) {
      if (reader.warp == 0 || reader.warp == mine.warp) {
        reader = mine;
        return;
      }
    }
    cell.readers[cell.next_reader++ % cell.readers.size()] = mine;
  });
}

// Computes products that have not been, but leaves the last `leave`.
void Warp::compute_products(std::size_t leave) {
  std::size_t waiting_ones = 0;
  for (const Product& product : products) waiting_ones += product.done ? 0 : 1;
  for (Product& product : products) {
    if (product.done) continue;
    if (waiting_ones-- <= leave) return;
    product.compute();
    product.done = true;
  }
}

void Warp::wait_for_products(std::uint32_t leave_groups) {
  std::size_t num_waited = 0;
  while (num_waited < products.size() && products[num_waited].group + leave_groups < product_groups) ++num_waited;
  compute_products(products.size() - num_waited);
  for (std::size_t i = 0; i < num_waited; ++i) {
    const Product& product = products[i];
    for (const Slot& slot : product.sums) {
      if (stamps_[slot.index] > product.stamp) fault("a sum was accessed before its product was waited for");
      poison_[slot.index] = 0;
    }
    for (const Slot& slot : product.factors) {
      if (writes_[slot.index] > product.stamp) fault("a factor was written before its product was waited for");
    }
    view_.all.join(product_id(), Epoch{.all_before = product.time + 1});
  }
  products.erase(products.begin(), products.begin() + static_cast<std::ptrdiff_t>(num_waited));
  for (const Product& product : products) {
    for (const Slot& slot : product.sums) poison_[slot.index] = kAllLanes;
  }
}

}  // namespace lockstep::ptx
// NOLINTEND(bugprone-misplaced-widening-cast, bugprone-implicit-widening-of-multiplication-result)
