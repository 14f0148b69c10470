// Tables that map our names to NCCL's; compiled against nccl.h, run without a GPU.
#include "collectives/libraries/nccl_api.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <map>
#include <set>
#include <string>

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using core::DType;
using core::ReduceOp;

TEST(NcclCalls, DtypesKeepTheirMeaning) {
  const std::map<DType, ncclDataType_t> expected{
      {DType::i8, ncclInt8},       {DType::u8, ncclUint8},          {DType::i32, ncclInt32},
      {DType::u32, ncclUint32},    {DType::i64, ncclInt64},         {DType::u64, ncclUint64},
      {DType::f16, ncclFloat16},   {DType::f32, ncclFloat32},       {DType::f64, ncclFloat64},
      {DType::bf16, ncclBfloat16}, {DType::f8e4m3, ncclFloat8e4m3}, {DType::f8e5m2, ncclFloat8e5m2}};
  for (const DType dtype : core::all_dtypes()) EXPECT_EQ(nccl_code(dtype), expected.at(dtype)) << core::name_of(dtype);
  EXPECT_EQ(expected.size(), static_cast<std::size_t>(ncclNumTypes));
}

TEST(NcclCalls, OperationsKeepTheirMeaning) {
  EXPECT_EQ(nccl_code(ReduceOp::sum), ncclSum);
  EXPECT_EQ(nccl_code(ReduceOp::prod), ncclProd);
  EXPECT_EQ(nccl_code(ReduceOp::max), ncclMax);
  EXPECT_EQ(nccl_code(ReduceOp::min), ncclMin);
  EXPECT_EQ(nccl_code(ReduceOp::avg), ncclAvg);
}

TEST(NcclCalls, EveryKindHasItsOwnCallOrNone) {
  std::set<NcclCall> calls;
  std::size_t with_call = 0;
  for (const Kind kind : collectives::all_kinds()) {
    const NcclCall call = nccl_call(kind);
    if (call == nullptr) continue;
    calls.insert(call);
    ++with_call;
  }
  EXPECT_EQ(calls.size(), with_call);
  for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast, Kind::reduce,
                          Kind::all_to_all, Kind::gather, Kind::scatter}) {
    EXPECT_NE(nccl_call(kind), nullptr) << collectives::name_of(kind);
  }
  for (const Kind kind : {Kind::all_to_all_v, Kind::send_recv, Kind::hypercube}) {
    EXPECT_EQ(nccl_call(kind), nullptr) << collectives::name_of(kind);
  }
}

TEST(NcclCalls, TheVersionIsThatOfTheLibrary) {
  int code = 0;
  ASSERT_EQ(ncclGetVersion(&code), ncclSuccess);
  EXPECT_TRUE(nccl_version().starts_with(std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "."))
      << nccl_version();
}

TEST(NcclCalls, ReachTheLibraryThatIsOpened) {
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

}  // namespace
}  // namespace lockstep::libraries
