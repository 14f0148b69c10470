#include "trainer/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "testing/trainer/checkpoint_ranks.h"

namespace lockstep::trainer {
namespace {

template <class T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// A file of a JSON header and this many bytes of data.
std::string file_text(const std::string& json, std::size_t data_bytes) {
  std::string text(8, '\0');
  const std::uint64_t length = json.size();
  std::memcpy(text.data(), &length, 8);
  return text + json + std::string(data_bytes, '\1');
}

std::string refusal(const std::string& json, std::size_t data_bytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  write_bytes(path, file_text(json, data_bytes));
  const std::string text = error_of([&] { const SafetensorsFile file(path); });
  const std::string begin = path + " is not a complete safetensors file: ";
  return text.rfind(begin, 0) == 0 ? text.substr(begin.size()) : text;
}

TEST(Safetensors, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  std::vector<float> a = {1.5F, -0.0F, std::numeric_limits<float>::denorm_min(), INFINITY, 3, 4};
  std::vector<float> b(300'000);
  for (std::size_t k = 0; k < b.size(); ++k) b[k] = static_cast<float>(k);
  SafetensorsWriter writer(folder / "t", {{"a", "F32", {2, 3}}, {"empty", "F32", {0, 7}}, {"b", "F32", {300, 1000}}},
                           {{"format", "pt"}});
  writer.write(raw(a));
  writer.write(raw(b));
  const FileSum sum = writer.commit();
  EXPECT_EQ(sum.bytes, static_cast<std::int64_t>(bytes_of(folder / "t").size()));
  EXPECT_EQ(sum.crc32, crc32_of(bytes_of(folder / "t")));
  EXPECT_EQ(sum.crc32, crc32_of(InputFile(folder / "t")));

  const SafetensorsFile file(folder / "t");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  std::vector<float> a_read(6);
  file.read(*file.find("a"), 0, a_read);
  for (std::size_t k = 0; k < a.size(); ++k) {  // bits: of -0, too
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a_read[k]), std::bit_cast<std::uint32_t>(a[k]));
  }
  std::vector<float> middle(1000);
  file.read(*file.find("b"), 123'456, middle);
  for (std::size_t k = 0; k < middle.size(); ++k) ASSERT_EQ(middle[k], static_cast<float>(123'456 + k));
  EXPECT_EQ(file.find("empty")->elems(), 0);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, TheBytesAreTheFormats) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "t", {{"w", "F32", {2}}}, {});
  writer.write(raw(std::vector<float>{1, 2}));
  writer.commit();
  const std::string json = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";  // 54 bytes
  std::string expected = std::string("\x38\0\0\0\0\0\0\0", 8) + json + "  ";
  expected += std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  EXPECT_EQ(bytes_of(folder / "t"), expected);
}

TEST(Safetensors, NarrowTypesAreReadAsF32) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "t", {{"b", "BF16", {5000}}, {"h", "F16", {5000}}, {"i", "I32", {1}}}, {});
  std::vector<core::BFloat16> b;
  std::vector<core::Float16> h;
  for (int k = 0; k < 5000; ++k) {
    b.push_back(core::to_bfloat16(static_cast<float>(k) * 0.37F));
    h.push_back(core::to_float16(static_cast<float>(k) * -0.37F));
  }
  writer.write(raw(b));
  writer.write(raw(h));
  writer.write(raw(std::vector<std::int32_t>{7}));
  writer.commit();
  const SafetensorsFile file(folder / "t");
  std::vector<float> values(4998);
  file.read(*file.find("b"), 2, values);
  for (std::size_t k = 0; k < values.size(); ++k) ASSERT_EQ(values[k], core::to_float(b[k + 2]));
  file.read(*file.find("h"), 2, values);
  for (std::size_t k = 0; k < values.size(); ++k) ASSERT_EQ(values[k], core::to_float(h[k + 2]));
  std::vector<float> integer(1);
  EXPECT_EQ(error_of([&] { file.read(*file.find("i"), 0, integer); }),
            folder / "t" + ": tensor \"i\" is of dtype I32; allowed: F32, F16, BF16");
}

TEST(Safetensors, AFileIsThereOnlyAfterCommit) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "t", {{"w", "F32", {2}}}, {});
    EXPECT_NE(error_of([&] { writer.commit(); }), "");  // bytes are missing
    EXPECT_NE(error_of([&] { writer.write(raw(std::vector<float>(3))); }), "");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, WhatTheFormatForbidsIsRefused) {
  const auto one = [](const std::string& fields) { return R"({"w":{)" + fields + "}}"; };
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8), "");
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal("{}   ", 0), "");
  EXPECT_EQ(refusal(" {}", 0), "its header does not begin with {");
  EXPECT_EQ(refusal("", 0), "its header does not begin with {");
  EXPECT_EQ(refusal("{\"w\":", 0), "its header is not JSON from byte 6 on");
  EXPECT_EQ(refusal("{\"\xff\":1}", 0), "its header is not JSON from byte 3 on");  // no UTF-8
  EXPECT_EQ(refusal(std::string("{}\0", 3), 0), "its header has a byte 0");
  EXPECT_EQ(refusal(R"({"__metadata__":null})", 0), "");
  EXPECT_EQ(refusal(R"({"__metadata__":3})", 0), "its metadata is not an object");
  EXPECT_EQ(refusal("{}", 3), "it has 3 bytes of data, its header has 0");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 7),
            "it has 7 bytes of data, its header has 8");
  EXPECT_EQ(refusal(one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8),
            "tensor \"w\" is of unknown dtype \"F33\"");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8),
            "the data_offsets of tensor \"w\" do not fit its shape and dtype");
  EXPECT_EQ(refusal(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1),
            "the data_offsets of tensor \"w\" do not fit its shape and dtype");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0])"), 0),
            "the data_offsets of tensor \"w\" do not fit its shape and dtype");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8),
            "the data_offsets of tensor \"w\" do not fit its shape and dtype");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8),
            "tensor \"w\" has -2 in \"shape\"; allowed: 0, 1, ...");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8),
            "tensor \"w\" has 2.0 in \"shape\"; allowed: 0, 1, ...");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])"), 8),
            "tensor \"w\" has 18446744073709551615 in \"data_offsets\"; allowed: 0, 1, ...");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8), "tensor \"w\" has 1 data_offsets");
  EXPECT_EQ(refusal(one(R"("dtype":"F32","shape":[2])"), 8), "tensor \"w\" has no list \"data_offsets\"");
  EXPECT_EQ(refusal(one(R"("shape":[2],"data_offsets":[0,8])"), 8), "tensor \"w\" has no dtype");
  EXPECT_EQ(refusal(R"({"w":3})", 8), "tensor \"w\" is not an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), "its metadata have \"a\", which is not text");
}

TEST(Safetensors, HolesOverlapsAndDuplicatesAreRefused) {
  const auto two = [](const std::string& first, const std::string& second, const std::string& name = "b") {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first + R"(},")" + name +
           R"(":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 8), "");
  EXPECT_EQ(refusal(two("[4,8]", "[0,4]"), 8), "");
  EXPECT_EQ(refusal(two("[0,4]", "[5,9]"), 9),
            "tensor \"b\" begins at byte 5 of the data, the one before it ends at 4");
  EXPECT_EQ(refusal(two("[0,4]", "[3,7]"), 7),
            "tensor \"b\" begins at byte 3 of the data, the one before it ends at 4");
  EXPECT_EQ(refusal(two("[0,4]", "[0,4]"), 4),
            "tensor \"b\" begins at byte 0 of the data, the one before it ends at 4");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", "a"), 8), "its header has \"a\" twice");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", R"(\n)"), 8), R"(its header has the name "\n", a control character)");
}

TEST(Safetensors, AHeaderLongerThanTheFileOrTheLimitIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "x";
  const auto refused = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return error_of([&] { const SafetensorsFile file(path); });
  };
  EXPECT_EQ(refused("short"), path + " is not a complete safetensors file: it has 5 bytes");
  EXPECT_EQ(refused(std::string("\x09\0\0\0\0\0\0\0{}", 10)),
            path + " is not a complete safetensors file: its header has 9 bytes, the file 10");
  EXPECT_EQ(refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
            path + " is not a complete safetensors file: its header would have 18446744073709551615 bytes");
  EXPECT_EQ(error_of([&] { const SafetensorsFile file(folder / "none"); }),
            "cannot read " + folder / "none" + ": No such file or directory");
}

// Whatever the bytes are: an answer or an Error, no crash and no read outside. The sanitizers watch.
TEST(Safetensors, DamagedHeadersNeverCrash) {
  const TemporaryFolder folder;
  const std::string path = folder / "x";
  {
    SafetensorsWriter writer(path, {{"first", "F32", {2, 3}}, {"second", "BF16", {4}}}, {{"format", "pt"}});
    writer.write(raw(std::vector<float>(8)));
    writer.commit();
  }
  const std::string whole = bytes_of(path);
  core::Random random(11);
  int refused = 0;
  for (int k = 0; k < 600; ++k) {
    std::string damaged = whole;
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
      damaged[random.below(whole.size())] = static_cast<char>(random.next());
    }
    if (random.below(4) == 0) damaged.resize(random.below(whole.size()));
    write_bytes(path, damaged);
    refused += error_of([&] {
                 const SafetensorsFile file(path);
                 std::vector<float> values;
                 for (const TensorInfo& tensor : file.tensors()) {
                   values.resize(static_cast<std::size_t>(tensor.elems()));
                   file.read(tensor, 0, values);
                 }
               }).empty()
                   ? 0
                   : 1;
  }
  EXPECT_GT(refused, 300);
}

TEST(Crc32, IsZlibs) {
  EXPECT_EQ(crc32_of("123456789"), 0xcbf43926u);  // the check value of the catalogue of CRCs
  EXPECT_EQ(crc32_text(0xcbf43926u), "cbf43926");
  EXPECT_EQ(crc32_text(1), "00000001");
  EXPECT_EQ(parse_crc32("cbf43926"), 0xcbf43926u);
  for (const char* bad : {"", "1", "CBF43926", "cbf4392", "cbf439260", "cbf4392g", "+bf43926"}) {
    EXPECT_EQ(parse_crc32(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace lockstep::trainer
