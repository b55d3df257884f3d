#include "coda/nn/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "coda/nn/rng.h"
#include "tests/nn/scratch.h"

namespace {

std::size_t most_of_a_read = SIZE_MAX;  // bytes

}  // namespace

/// In the place of the C library's: Linux reads at most 2 GiB a call, and here even less where a test wants it.
extern "C" ssize_t pread(int file, void* to, std::size_t bytes, off_t at) {
  return ::syscall(SYS_pread64, file, to, std::min(bytes, most_of_a_read), at);
}

namespace {

using coda::DType;
using coda::Status;
using coda::nn::HostTensor;
using coda::nn::SafetensorsFile;
using coda::nn::Shape;
using coda::nn::TensorToWrite;
using coda::nn::to_string;
using coda::nn::write_safetensors;
using coda::testing::expect_error;
using coda::testing::Scratch;

TensorToWrite tensor(const std::string& name, DType dtype, const Shape& shape, unsigned char first) {
  return {name, dtype, shape, [first](std::span<std::byte> out) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::byte(static_cast<unsigned char>(first + i * 7));
          }};
}

std::string with_header(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'x');
}

TEST(Safetensors, ReadsBackEveryDTypeAndShape) {
  Scratch scratch;
  const Shape shapes[] = {{}, {0}, {3}, {2, 0, 4}, {3, 5}, {2, 3, 4}};
  const DType dtypes[] = {DType::bf16, DType::fp16, DType::fp32, DType::fp64, DType::int32, DType::int64};
  std::vector<TensorToWrite> tensors;
  unsigned char seed = 0;
  for (const DType dtype : dtypes) {
    for (const Shape& shape : shapes) {
      tensors.push_back(tensor(name_of(dtype) + to_string(shape), dtype, shape, ++seed));
    }
  }
  const auto path = scratch / "all.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}, {"quote\"d", "x\ny"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (coda::nn::Metadata{{"format", "pt"}, {"quote\"d", "x\ny"}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorToWrite& written : tensors) {
    const HostTensor read = file.load(written.name);
    EXPECT_EQ(read.dtype(), written.dtype);
    EXPECT_EQ(read.shape(), written.shape);
    std::vector<std::byte> expected(read.bytes().size());
    written.fill(expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), read.bytes().begin())) << written.name;
    EXPECT_EQ(file.entry(written.name).begin % static_cast<std::uint64_t>(size_of(written.dtype)), 0u) << written.name;
  }
}

TEST(Safetensors, WritesTheLayoutOfTheFormat) {
  Scratch scratch;
  write_safetensors(scratch / "f", {tensor("b", DType::bf16, {1}, 1), tensor("a", DType::fp32, {1}, 2)}, {});
  const std::string text = coda::testing::slurp(scratch / "f");
  const std::string header = R"({"__metadata__":{},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(text.substr(8, header.size()), header);
  EXPECT_EQ(text.size(), 8 + length + 6);
}

TEST(Safetensors, DataBeginAtAMultipleOf8BytesHoweverLongTheHeader) {
  Scratch scratch;
  for (std::size_t more = 0; more < 8; ++more) {
    const std::string name(1 + more, 'a');
    write_safetensors(scratch / "f", {tensor(name, DType::fp64, {2}, 1)}, {});
    EXPECT_EQ(SafetensorsFile(scratch / "f").entry(name).begin % 8, 0u) << name;
  }
}

TEST(Safetensors, UnknownNamesAndWrongSizesAreRefused) {
  Scratch scratch;
  write_safetensors(scratch / "f", {tensor("a", DType::fp32, {2}, 2)}, {});
  const SafetensorsFile file(scratch / "f");
  expect_error(Status::invalid_argument, [&] { file.load("b"); }, "\"b\"", "got none");
  std::byte small[4], large[12];
  expect_error(Status::invalid_argument, [&] { file.load("a", small); }, "\"a\"", "expected 4", "got 8");
  expect_error(Status::invalid_argument, [&] { file.load("a", large); }, "\"a\"", "expected 12", "got 8");
  expect_error(
      Status::invalid_argument,
      [&] {
        write_safetensors(scratch / "g", {tensor("a", DType::fp32, {2}, 2), tensor("a", DType::fp32, {1}, 2)}, {});
      },
      "\"a\"", "expected a new name");
  expect_error(
      Status::invalid_argument, [&] { write_safetensors(scratch / "g", {}, {{"path", "b\xffook"}}); }, "header",
      "expected UTF-8", "ook");
  expect_error(
      Status::invalid_argument, [&] { write_safetensors(scratch / "g", {}, {{"b\xffook", "path"}}); }, "header",
      "expected UTF-8", "ook");
  expect_error(
      Status::invalid_argument, [&] { write_safetensors(scratch / "g", {tensor("\xff", DType::fp32, {2}, 2)}, {}); },
      "expected UTF-8");
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 1u);
}

TEST(Safetensors, DamagedHeadersAreNamed) {
  const auto one = [](const char* entry) { return std::string("{\"t\":") + entry + "}"; };
  struct Case {
    std::string header;
    std::size_t data;
    Status status;
    const char* words;
  };
  const auto bad = Status::invalid_argument;
  const Case cases[] = {
      {"", 0, bad, "JSON object"},
      {"[]", 0, bad, "JSON object"},
      {" {}", 0, bad, "JSON object"},
      {std::string("{}\0{", 4), 0, bad, "JSON object"},
      {"{\"t\":", 0, bad, "JSON object"},
      {one("3"), 0, bad, "expected an object"},
      {one(R"({"shape":[1],"data_offsets":[0,4]})"), 4, bad, "dtype"},
      {one(R"({"dtype":3,"shape":[1],"data_offsets":[0,4]})"), 4, bad, "dtype: expected a string"},
      {one(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})"), 4, Status::unsupported, "F8_E4M3"},
      {one(R"({"dtype":"F32","data_offsets":[0,4]})"), 4, bad, "shape"},
      {one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4, bad, "shape"},
      {one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), 4, bad, "shape"},
      {one(R"({"dtype":"F32","shape":[1]})"), 4, bad, "data_offsets"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), 4, bad, "a list of 2"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"), 4, bad, "a list of 2"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), 4, bad, "expected 4 bytes"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4, bad, "expected 8 bytes"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), 4, bad, "truncated"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), 0, bad, "2^62"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})"), 4, bad, "non-negative"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"), 8, bad, "expected 4 bytes"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), 8, bad, "unused"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 8, bad, "expected"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, bad, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, bad, "\"a\": expected once"},
      {one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})"), 4, bad, "\"shape\": expected once"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, bad, "\"a\": expected once"},
      {"{\"t\":" + std::string(1'000'000, '['), 0, bad, "deeper ones"},
      {R"({"__metadata__":[]})", 0, bad, "__metadata__"},
      {R"({"__metadata__":{"a":1}})", 0, bad, "__metadata__"},
  };
  Scratch scratch;
  for (const Case& c : cases) {
    const auto path = scratch.write("damaged", with_header(c.header, c.data));
    SCOPED_TRACE(c.header);
    expect_error(c.status, [&] { SafetensorsFile file(path); }, "damaged", c.words);
  }
  const std::string huge_length("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  const auto path = scratch.write("damaged", huge_length);
  expect_error(bad, [&] { SafetensorsFile file(path); }, "header length");
  // A length that the file has room for, but no header has.
  const auto large = scratch.write("large", std::string("\0\0\0\x08\0\0\0\0{}", 10));
  std::filesystem::resize_file(large, std::uintmax_t{1} << 28);
  expect_error(bad, [&] { SafetensorsFile file(large); }, "header length: expected at most 100000000");
}

TEST(Safetensors, EveryTruncationIsNoticed) {
  Scratch scratch;
  write_safetensors(scratch / "f", {tensor("a", DType::bf16, {2, 3}, 2), tensor("b", DType::int64, {2}, 2)}, {});
  const std::string whole = coda::testing::slurp(scratch / "f");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto path = scratch.write("cut", std::string_view(whole).substr(0, size));
    expect_error(Status::invalid_argument, [&] { SafetensorsFile file(path); }, "cut");
  }
}

TEST(Safetensors, RandomDamageNeverReadsOutOfRange) {
  Scratch scratch;
  write_safetensors(scratch / "f", {tensor("a", DType::bf16, {2, 3}, 2), tensor("b", DType::int64, {2}, 2)}, {});
  const std::string whole = coda::testing::slurp(scratch / "f");
  const coda::nn::Rng rng(20240601, 0);
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    std::string text = whole;
    text[rng.below(text.size(), 2 * trial)] = static_cast<char>(rng.bits(2 * trial + 1));
    const auto path = scratch.write("damaged", text);
    try {
      const SafetensorsFile file(path);
      for (const auto& [name, entry] : file.tensors()) file.load(name);
    } catch (const coda::Error&) {
    }
  }
}

TEST(Safetensors, AFileCutShortAfterOpeningIsAnError) {
  Scratch scratch;
  write_safetensors(scratch / "f", {tensor("a", DType::fp32, {100}, 2)}, {});
  const SafetensorsFile file(scratch / "f");
  std::filesystem::resize_file(scratch / "f", 200);
  expect_error(Status::io_error, [&] { file.load("a"); }, "/f:", "expected 400 bytes");
}

TEST(Safetensors, AFullDiskLeavesTheOldFileAsItWas) {
  Scratch scratch;
  const auto path = scratch / "f";
  write_safetensors(path, {tensor("a", DType::fp32, {100}, 2)}, {});
  const std::string before = coda::testing::slurp(path);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{10}, rlim_t{5000}}) {
    const coda::testing::FullDisk full(limit);
    expect_error(
        Status::io_error, [&] { write_safetensors(path, {tensor("a", DType::fp32, {10000}, 2)}, {}); }, path.string(),
        "File too large");
  }
  EXPECT_EQ(coda::testing::slurp(path), before);
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 1u) << "a temporary file was left behind";
}

TEST(AtomicFile, HasTheUsualPermissionsAndLeavesTheUmaskAlone) {
  Scratch scratch, files;
  const mode_t before = ::umask(027);
  std::atomic<bool> done{false}, changed{false};
  std::thread other([&] {  // makes folders meanwhile, whose permissions tell the umask
    for (int i = 0; !done; ++i) {
      const auto folder = scratch / ("d" + std::to_string(i));
      std::filesystem::create_directory(folder);
      if ((std::filesystem::status(folder).permissions() & std::filesystem::perms::others_all) !=
          std::filesystem::perms::none) {
        changed = true;
      }
    }
  });
  for (int i = 0; i < 300; ++i) {
    coda::AtomicFile file(files / "f");
    file.commit();
  }
  done = true;
  other.join();
  ::umask(before);
  EXPECT_FALSE(changed);
  EXPECT_EQ(static_cast<unsigned>(std::filesystem::status(files / "f").permissions()), 0640u);
}

TEST(AtomicFile, TemporariesOfKilledProcessesGoAndThoseInUseStay) {
  Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    coda::AtomicFile file(scratch / "f");
    file.write("half of it");
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 1u);
  for (const char* name :
       {"f.20261123", "f.01234567.txt", "f.012345678.tmp", "g.01234567.tmp", "f.old.tmp", "f.original.tmp"})
    scratch.write(name, "another's");
  {
    coda::AtomicFile first(scratch / "f"), second(scratch / "f");
    second.write("second");
    second.commit();
    first.write("first");
    first.commit();
  }
  EXPECT_EQ(coda::testing::slurp(scratch / "f"), "first");
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 7u);
}

/// The folder of a name alone is where the process is.
TEST(AtomicFile, OfANameAloneLooksAroundInItsFolder) {
  Scratch scratch;
  scratch.write("f.01234567.tmp", "a killed process's");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  coda::AtomicFile("f").commit();
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(scratch / "f"));
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 1u);
}

TEST(Files, AReadThatGivesLessGoesOn) {
  Scratch scratch;
  const std::string text = "0123456789";
  scratch.write("f", text);
  most_of_a_read = 3;
  const std::string read = coda::read_text(scratch / "f");
  most_of_a_read = SIZE_MAX;
  EXPECT_EQ(read, text);
}

TEST(Files, ATextHasAtMostAsManyBytesAsItsReaderTakes) {
  Scratch scratch;
  scratch.write("f", "12345");
  EXPECT_EQ(coda::read_text(scratch / "f", 5), "12345");
  expect_error(Status::io_error, [&] { coda::read_text(scratch / "f", 4); }, "/f: expected at most 4 bytes, got 5");
}

TEST(Files, OneThatMovedIsClosedByItsNewOwnerAlone) {
  Scratch scratch;
  auto first = std::make_unique<coda::InputFile>(scratch.write("f", "text"));
  const coda::InputFile second(std::move(*first));
  first.reset();
  std::byte text[4];
  second.read(0, text);
  EXPECT_EQ(std::memcmp(text, "text", 4), 0);
}

/// Also where the constructor throws.
TEST(Files, NothingStaysOpen) {
  Scratch scratch;
  const auto open = [] { return coda::testing::count_files("/proc/self/fd"); };
  const std::size_t before = open();
  for (int i = 0; i < 3; ++i) {
    scratch.write("f.01234567.tmp", "a killed process's");
    coda::AtomicFile(scratch / "f").commit();
    coda::AtomicFile given_up(scratch / "f");
    coda::InputFile file(scratch / "f");
    const coda::InputFile moved(std::move(file));
    expect_error(Status::io_error, [&] { coda::InputFile folder(scratch.path()); }, "regular file");
    const coda::FolderLock lock(scratch.path());
    expect_error(Status::io_error, [&] { coda::FolderLock second(scratch.path()); }, "another process");
  }
  EXPECT_EQ(open(), before);
}

TEST(AtomicFile, WritesWhatALinkNamesAndNothingButFiles) {
  namespace fs = std::filesystem;
  Scratch scratch;
  fs::create_directory(scratch / "there");
  scratch.write("there/f", "old");
  fs::create_symlink("there/f", scratch / "link");
  fs::create_symlink(scratch / "there" / "new", scratch / "dangling");
  fs::create_symlink("link", scratch / "second");
  fs::create_symlink("second", scratch / "third");
  for (const char* name : {"link", "dangling", "third"}) {
    coda::AtomicFile file(scratch / name);
    file.write("new");
    file.commit();
    EXPECT_TRUE(fs::is_symlink(scratch / name)) << name;
  }
  EXPECT_EQ(coda::testing::slurp(scratch / "there" / "f"), "new");
  EXPECT_EQ(coda::testing::slurp(scratch / "there" / "new"), "new");
  EXPECT_EQ(coda::testing::count_files(scratch / "there"), 2u);

  const auto refuse = [&](const char* name, const char* cause) {
    expect_error(Status::io_error, [&] { coda::AtomicFile file(scratch / name); }, name, cause);
  };
  fs::create_symlink("loop", scratch / "loop");
  refuse("loop", "Too many levels");
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  refuse("pipe", "expected a regular file or none");
  refuse("there", "expected a regular file or none");
}

TEST(Safetensors, FilesThatCannotBeOpenedAreNamed) {
  Scratch scratch;
  expect_error(Status::io_error, [&] { SafetensorsFile file(scratch / "none"); }, "none", "No such file");
  expect_error(Status::io_error, [&] { SafetensorsFile file(scratch.path()); }, "regular file");
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  expect_error(Status::io_error, [&] { SafetensorsFile file(scratch / "pipe"); }, "regular file");
  expect_error(Status::io_error, [&] { write_safetensors(scratch / "no/f", {}, {}); }, "no/f", "No such file");
}

}  // namespace
