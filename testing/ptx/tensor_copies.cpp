// Copies of tensors to shared memory by the copy engine (PTX ISA 9.0, section 9.7.9.27).
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "testing/cuda_stand_in/tensor_map.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"
#include "testing/ptx/swizzle.h"

namespace lockstep::ptx {
namespace {

struct Box {
  cuda_stand_in::EncodedTensorMap map;
  std::array<std::int32_t, 5> at{};

  std::size_t elem_bytes() const {
    constexpr std::array<std::size_t, 13> kBytes{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // CUtensorMapDataType
    return kBytes.at(map.data_type);
  }
  std::size_t row_bytes() const { return map.box[0] * elem_bytes(); }
  std::size_t rows() const {
    std::size_t rows = 1;
    for (int d = 1; d < map.rank; ++d) rows *= map.box[d];
    return rows;
  }
};

int swizzle_of(const cuda_stand_in::EncodedTensorMap& map) {
  return map.swizzle == 0 ? 0 : 4 - map.swizzle;  // 3: 128 bytes, 2: 64, 1: 32
}

// Calls each(address in global memory or 0 if it is outside, offset in the box) for each element.
template <class F>
void for_elements(const Box& box, F&& each) {
  const std::size_t elem = box.elem_bytes();
  for (std::size_t row = 0; row < box.rows(); ++row) {
    std::uint64_t address = box.map.address;
    bool inside = true;
    std::size_t left = row;
    for (int d = 1; d < box.map.rank; ++d) {
      const auto at = box.at[static_cast<std::size_t>(d)] + static_cast<std::int32_t>(left % box.map.box[d]);
      left /= box.map.box[d];
      inside = inside && at >= 0 && static_cast<std::uint32_t>(at) < box.map.sizes[d];
      address += static_cast<std::uint64_t>(at) * box.map.strides_bytes[d - 1];
    }
    for (std::size_t x = 0; x < box.map.box[0]; ++x) {
      const auto at = box.at[0] + static_cast<std::int32_t>(x);
      const bool here = inside && at >= 0 && static_cast<std::uint32_t>(at) < box.map.sizes[0];
      each(here ? address + static_cast<std::uint64_t>(at) * elem : 0, row * box.row_bytes() + x * elem);
    }
  }
}

Box box_of(Warp& warp, const Op& op, int lane) {
  Box box;
  const std::uint64_t at = warp.bits(op.from[1], lane);
  for (std::size_t i = 0; i < sizeof box.map; i += 16) {
    const Warp::Place place = warp.locate(Space::generic, at + i, 16, lane);
    std::memcpy(reinterpret_cast<std::byte*>(&box.map) + i, place.data, 16);
  }
  if (box.map.mark != cuda_stand_in::EncodedTensorMap::kMark) warp.fault("what should be a tensor map is not one");
  if (at % 64 != 0) warp.fault("a tensor map that is not aligned to 64 bytes");
  for (int d = 0; d < op.number; ++d) {
    box.at[static_cast<std::size_t>(d)] =
        static_cast<std::int32_t>(warp.bits(op.from[static_cast<std::size_t>(d) + 3], lane));
  }
  if (box.map.rank != op.number) warp.fault(fmt::format("a tensor map of {} dimensions", box.map.rank));
  return box;
}

bool load_tensor(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const Box box = box_of(warp, op, lane);
    const std::size_t bytes = box.rows() * box.row_bytes();
    const Warp::Place to = warp.locate(Space::shared, warp.address(op, op.from[0], lane), 128, lane);
    const std::size_t begin = to.offset;
    if (begin + bytes > to.block->shared.size()) warp.fault("a box that ends outside of shared memory");
    if (swizzle_of(box.map) != 0 && begin % (1024U >> (swizzle_of(box.map) - 1)) != 0) {
      warp.fault("a box that is not aligned to the pattern of its swizzle");
    }
    const Warp::Place at_barrier = warp.locate(Space::shared, warp.bits(op.from[2], lane) & 0xffffffffU, 8, lane);
    Block* const block = to.block;
    const auto found = at_barrier.block->memory_barriers.find(static_cast<std::uint32_t>(at_barrier.offset));
    if (found == at_barrier.block->memory_barriers.end())
      warp.fault("a copy for a barrier that nobody has initialized");
    MemoryBarrier* const barrier = &found->second;
    if (!warp.is_ordered(barrier->initialized_by, lane, Proxy::async)) {
      warp.fault("a copy for a barrier whose initialization no fence has made visible to it");
    }
    warp.on_write(to, bytes, lane, op, Proxy::async);
    if (barrier->engine == 0) barrier->engine = warp.machine().new_warps(*block, warp.index());
    Access write = warp.access_of(op, 0, Proxy::async);
    write.warp = barrier->engine;
    write.time = ++barrier->engine_time;
    write.is_in_flight = 1;
    block->shadow.for_cells(begin, bytes, [&](Shadow::Cell& cell) { cell.writer = write; });
    Counts& counts = warp.block().launch.counts;
    counts.global_bytes_read += bytes;
    counts.global_sectors += bytes / 32;
    ++counts.global_requests;
    for_elements(box, [&](std::uint64_t from, std::size_t) {
      if (from == 0) return;
      const Warp::Place place = warp.locate(Space::global, from, box.elem_bytes(), lane);
      warp.on_read(place, box.elem_bytes(), lane, op, Proxy::async);
      if (!place.shadow->is_initialized(place.offset, box.elem_bytes())) {
        warp.fault("a copy of global memory that nobody has written");
      }
    });
    warp.machine().later([=] {
      const int swizzle = swizzle_of(box.map);
      for_elements(box, [&](std::uint64_t from, std::size_t offset) {
        const std::uint32_t at = swizzled(static_cast<std::uint32_t>(begin + offset), swizzle);
        if (from == 0) {
          std::memset(&block->shared[at], 0, box.elem_bytes());
        } else {
          // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of the device are those of this process
          std::memcpy(&block->shared[at], reinterpret_cast<const void*>(from), box.elem_bytes());
        }
      });
      block->shadow.for_cells(begin, bytes, [](Shadow::Cell& cell) { cell.writer.is_in_flight = 0; });
      barrier->arriving.all.join(write.warp, Epoch{.all_before = write.time + 1});
      barrier->bytes -= static_cast<std::int64_t>(bytes);
      complete_phase(*barrier);
    });
  });
  return true;
}

}  // namespace

bool decode_tensor_copy(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  if (parts[0] != "cp" || parts.size() < 7 || parts[2] != "bulk" || parts[3] != "tensor") return false;
  if (parts[5] != "shared::cluster" || parts[6] != "global") return false;
  const auto& operands = op.text->operands;
  op.work = Work::memory;
  op.space = Space::shared;
  op.number = parts[4][0] - '0';
  op.from = {program.address_of(operands[0]), program.address_of(operands[1]), program.address_of(operands[2])};
  op.offset = operands[0].offset;
  for (const Operand& coordinate : operands[1].parts.at(0).parts) {
    op.from.push_back(program.value_of(coordinate, Type::s32));
  }
  op.run = load_tensor;
  return true;
}

}  // namespace lockstep::ptx
