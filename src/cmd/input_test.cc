#include "cmd/input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/output.h"
#include "lab/temp_folder.h"

namespace loch::cmd {
namespace {

// An anonymous file that holds `content`, at its start.
class Content {
 public:
  explicit Content(std::string_view content) : descriptor_(::memfd_create("content", MFD_CLOEXEC)) {
    Output out(descriptor_);
    EXPECT_TRUE(out.write(content) && out.flush());
    ::lseek(descriptor_, 0, SEEK_SET);
  }
  ~Content() { ::close(descriptor_); }
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::vector<std::string> lines_of(std::string_view content) {
  const Content file(content);
  LineReader reader(file.descriptor(), 1 << 20);
  std::vector<std::string> lines;
  while (true) {
    const auto line = reader.next();
    EXPECT_TRUE(line);
    if (!line || !*line) return lines;
    lines.emplace_back(**line);
    EXPECT_EQ(reader.line_number(), lines.size());
  }
}

using Lines = std::vector<std::string>;

TEST(LineReader, SplitsLines) {
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("a"), Lines{"a"});
  EXPECT_EQ(lines_of("a\n"), Lines{"a"});
  EXPECT_EQ(lines_of("\n\na\n\nb"), (Lines{"", "", "a", "", "b"}));
  EXPECT_EQ(lines_of("a\r\nb\rc\r\n"), (Lines{"a", "b\rc"}));
  EXPECT_EQ(lines_of(std::string_view("a\0b\nc", 5)), (Lines{std::string("a\0b", 3), "c"}));
}

TEST(LineReader, DropsAByteOrderMarkAtTheBeginning) {
  const std::string mark(byte_order_mark);
  EXPECT_EQ(lines_of(mark), Lines{""});
  EXPECT_EQ(lines_of(mark + "a\n" + mark + "b\n"), (Lines{"a", mark + "b"}));
  EXPECT_EQ(lines_of("\n" + mark), (Lines{"", mark}));
}

TEST(LineReader, KeepsLinesThatCrossItsBuffer) {
  std::string content;
  Lines expected;
  for (std::size_t i = 0; i < 40; ++i) {
    expected.emplace_back(i * 3001, static_cast<char>('a' + i % 26));
    content += expected.back() + "\n";
  }
  EXPECT_EQ(lines_of(content), expected);
}

TEST(LineReader, RefusesALineThatIsTooLong) {
  const Content file("short\n" + std::string(2 << 20, 'x') + "\n");
  LineReader reader(file.descriptor(), 1 << 20);
  ASSERT_TRUE(reader.next());
  const auto line = reader.next();
  ASSERT_FALSE(line);
  EXPECT_NE(line.error().find("line 2"), std::string::npos) << line.error();
}

TEST(LineReader, SaysWhenReadingFails) {
  LineReader reader(-1, 100);
  EXPECT_FALSE(reader.next());
}

TEST(InputFile, ReadsAllUpToItsLimit) {
  const auto folder = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path = folder.path() + "/input";
  const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(descriptor, 0);
  Output out(descriptor);
  const std::string content(300'000, 'x');
  ASSERT_TRUE(out.write(content) && out.flush());
  ::close(descriptor);

  auto file = InputFile::open(path);
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(file->size_bytes(), content.size());
  EXPECT_EQ(file->read_all(content.size()).value(), content);
  auto again = InputFile::open(path);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->read_all(content.size() - 1).value());
  ::unlink(path.c_str());
  EXPECT_FALSE(InputFile::open(path));
}

TEST(Output, KeepsTheFirstError) {
  Output out(-1);
  EXPECT_TRUE(out.write("kept"));
  EXPECT_FALSE(out.flush());
  EXPECT_EQ(out.error(), EBADF);
  EXPECT_FALSE(out.write("more"));
  EXPECT_FALSE(out.reader_gone());
}

TEST(WholeFile, LeavesTheOldFileUntilItIsPublished) {
  const auto folder = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path = folder.path() + "/whole";
  const auto content_of = [&]() -> std::string {
    auto file = InputFile::open(path);
    return file ? file->read_all(1000).value().value_or("too long") : "missing";
  };
  const auto write = [&](std::string_view content, bool publish) {
    auto file = WholeFile::create(path);
    ASSERT_TRUE(file) << file.error();
    Output out(file->descriptor());
    ASSERT_TRUE(out.write(content) && out.flush());
    if (publish) ASSERT_TRUE(file->publish());
  };
  write("first", false);
  EXPECT_EQ(content_of(), "missing");
  write("first", true);
  EXPECT_EQ(content_of(), "first");
  for (const mode_t mode : {0600, 0640, 0666}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    write("first", true);
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
  write("second", false);
  EXPECT_EQ(content_of(), "first");
  write("second", true);
  EXPECT_EQ(content_of(), "second");
}

// Values are as private as the store.
TEST(WholeFile, ANewOneIsForItsOwnerAlone) {
  const auto folder = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path = folder.path() + "/new";
  const mode_t mask = ::umask(0);
  auto file = WholeFile::create(path);
  ::umask(mask);
  ASSERT_TRUE(file && file->publish());
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

// Expect: what the caller named, and not the name that it would have had meanwhile.
TEST(WholeFile, SaysWhichOneCanNotBeMade) {
  const auto folder = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path = folder.path() + "/missing/file";
  const auto file = WholeFile::create(path);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().find(path + ": No such file or directory"), std::string::npos) << file.error();
}

TEST(WholeFile, WritesADeviceInPlace) {
  auto file = WholeFile::create("/dev/null");
  ASSERT_TRUE(file) << file.error();
  EXPECT_TRUE(file->publish());
  struct stat status{};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

}  // namespace
}  // namespace loch::cmd
