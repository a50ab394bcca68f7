#include "bench/libfabric_reads.h"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <poll.h>
#include <sched.h>
#include <span>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/random.h"
#include "bench/clock.h"
#include "bench/libfabric_end.h"

namespace loch::bench {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t timeout_ns = 10 * base::second_ns;  // of a read, and of all that comes before

// What an end tells the process that made it: once, or that it failed.
struct News {
  LibfabricEnd::Address target{};
  Lap lap{};
  Errc code = Errc::io;
  std::array<char, 256> failure{};  // empty: none
};
static_assert(std::is_trivially_copyable_v<News>);
static_assert(sizeof(News) <= PIPE_BUF);  // so it is written as a whole

std::unexpected<Error> system_failure(const char* step) {
  return fail(Errc::io, "bench", fmt::format("libfabric: {}: {}", step, std::strerror(errno)));
}

// A child that is killed with its owner.
class Child {
 public:
  using Tell = std::function<void(const News&)>;

  static Result<Child> start(const std::function<Result<void>(const Tell&)>& work) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_failure("pipe2");
    base::FileDescriptor ear(ends[0]);
    const base::FileDescriptor mouth(ends[1]);
    const pid_t parent = ::getpid();
    const pid_t id = ::fork();
    if (id < 0) return system_failure("fork");
    if (id == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
      be_child(mouth.get(), work);
    }
    return Child(id, std::move(ear));
  }

  Child(Child&& other) noexcept : id_(std::exchange(other.id_, -1)), ear_(std::move(other.ear_)) {}
  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (id_ < 0) return;
    ::kill(id_, SIGKILL);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  [[nodiscard]] Result<News> hear(std::uint64_t wait_ns) const {
    pollfd waiting{.fd = ear_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(wait_ns / base::millisecond_ns)) <= 0)
      return fail(Errc::timed_out, "bench", "libfabric: an end is silent");
    News news;
    if (::read(ear_.get(), &news, sizeof news) != sizeof news)
      return fail(Errc::io, "bench", "libfabric: an end died");
    if (news.failure[0] != '\0') return fail(news.code, "bench", news.failure.data());
    return news;
  }

 private:
  Child(pid_t id, base::FileDescriptor ear) : id_(id), ear_(std::move(ear)) {}

  [[noreturn]] static void be_child(int mouth, const std::function<Result<void>(const Tell&)>& work) {
    const Tell tell = [mouth](const News& news) {
      // Who does not hear it hears of the end of this process.
      if (::write(mouth, &news, sizeof news) != sizeof news) ::_exit(1);
    };
    if (const auto done = work(tell); !done) {
      News news{.code = done.error().code};
      const std::string& detail = done.error().detail;
      detail.copy(news.failure.data(), news.failure.size() - 1);
      tell(news);
    }
    ::_exit(0);
  }

  pid_t id_;
  base::FileDescriptor ear_;
};

// Each word holds its place, so the reader knows what it has to get. Both ends look again and again, and let
// others run between two looks, as the ends of Loch's connections do.
Result<void> serve(const LibfabricReads& reads, const Child::Tell& tell) {
  if (reads.network_namespace >= 0 && ::setns(reads.network_namespace, CLONE_NEWNET) != 0)
    return system_failure("setns");
  confine(0, reads.target_cores);
  std::vector<std::uint64_t> words(reads.region_bytes / word_bytes);
  for (std::size_t place = 0; place < words.size(); ++place) words[place] = place;
  auto end = LibfabricEnd::open(LibfabricEnd::Side::target, reads.host, reads.outstanding);
  if (!end) return std::unexpected(std::move(end.error()));
  if (auto lent = end->lend(words); !lent) return lent;
  const auto address = end->address();
  if (!address) return std::unexpected(address.error());
  tell({.target = *address});
  const auto served_ns = static_cast<std::uint64_t>(reads.seconds * 1e9) + 2 * timeout_ns;
  for (const std::uint64_t end_ns = now_ns() + served_ns; now_ns() < end_ns;) {
    if (auto looked = end->poll(); !looked) return std::unexpected(std::move(looked.error()));
    ::sched_yield();
  }
  return {};
}

// A read that is posted again as soon as it has completed.
struct Read {
  std::uint64_t place = 0;
  std::uint64_t word = 0;
};

class Reader {
 public:
  // Reads `reads` at a time, which outlive the end.
  Reader(LibfabricEnd& end, std::uint64_t words, std::span<Read> reads)
      : end_(end), words_(words), reads_(reads), random_(reads.size()) {}

  // The first read also connects, so it is no part of any measurement.
  Result<Lap> run(double seconds) {
    idle_ = {&reads_.front()};
    if (auto connected = lap(0); !connected) return connected;
    idle_.clear();
    for (Read& read : reads_) idle_.push_back(&read);
    return lap(seconds);
  }

 private:
  // Posts those that are idle again and again for so long, at least once, and waits for the last.
  Result<Lap> lap(double seconds) {
    const auto wanted_ns = static_cast<std::uint64_t>(seconds * 1e9);
    const std::uint64_t start_ns = now_ns();
    std::uint64_t last_ns = start_ns;
    std::size_t posted = 0;
    Lap lap;
    for (bool is_over = false; posted != 0 || !is_over;) {
      if (!is_over) {
        const auto more = post();
        if (!more) return std::unexpected(more.error());
        posted += *more;
      }
      const auto done = take();
      if (!done) return std::unexpected(done.error());
      posted -= *done;
      lap.operations += *done;
      const std::uint64_t now = now_ns();
      if (*done != 0) last_ns = now;
      if (*done == 0) ::sched_yield();
      if (now - last_ns > timeout_ns)
        return fail(Errc::timed_out, "bench", "libfabric: a read is not answered");
      is_over = lap.operations != 0 && now - start_ns >= wanted_ns;
    }
    lap.elapsed_ns = last_ns - start_ns;
    return lap;
  }

  // As many as libfabric takes now.
  Result<std::size_t> post() {
    std::size_t posted = 0;
    for (; !idle_.empty(); ++posted) {
      Read& read = *idle_.back();
      read.place = random_.below(words_);
      read.word = ~read.place;
      const auto taken = end_.read(read.place * word_bytes, read.word, &read);
      if (!taken) return std::unexpected(taken.error());
      if (!*taken) break;
      idle_.pop_back();
    }
    return posted;
  }

  Result<std::size_t> take() {
    const auto completed = end_.poll();
    if (!completed) return std::unexpected(completed.error());
    for (const fi_cq_entry& entry : *completed) {
      auto* const read = static_cast<Read*>(entry.op_context);
      if (read->word != read->place)
        return fail(Errc::corrupt, "bench", "libfabric: a word is not what was put");
      idle_.push_back(read);
    }
    return completed->size();
  }

  LibfabricEnd& end_;
  std::uint64_t words_;
  std::span<Read> reads_;
  std::vector<Read*> idle_;
  base::Random random_;
};

Result<void> read(const LibfabricReads& reads, const LibfabricEnd::Address& target, const Child::Tell& tell) {
  std::vector<Read> posted(reads.outstanding);
  auto end = LibfabricEnd::open(LibfabricEnd::Side::reader, reads.host, reads.outstanding);
  if (!end) return std::unexpected(std::move(end.error()));
  if (auto known = end->read_from(target); !known) return known;
  const auto lap = Reader(*end, reads.region_bytes / word_bytes, posted).run(reads.seconds);
  if (!lap) return std::unexpected(lap.error());
  tell({.lap = *lap});
  return {};
}

}  // namespace

Result<void> find_libfabric() {
  const auto child = Child::start([](const Child::Tell& tell) -> Result<void> {
    if (const auto calls = LibfabricCalls::load(); !calls) return std::unexpected(calls.error());
    tell({});
    return {};
  });
  if (!child) return std::unexpected(child.error());
  if (const auto heard = child->hear(timeout_ns); !heard) return std::unexpected(heard.error());
  return {};
}

Result<Lap> run_libfabric_reads(const LibfabricReads& reads) {
  const auto target = Child::start([&](const Child::Tell& tell) { return serve(reads, tell); });
  if (!target) return std::unexpected(target.error());
  const auto lent = target->hear(timeout_ns);
  if (!lent) return std::unexpected(lent.error());
  const auto reader = Child::start([&](const Child::Tell& tell) { return read(reads, lent->target, tell); });
  if (!reader) return std::unexpected(reader.error());
  const auto heard = reader->hear(static_cast<std::uint64_t>(reads.seconds * 1e9) + 3 * timeout_ns);
  if (!heard) return std::unexpected(heard.error());
  return heard->lap;
}

}  // namespace loch::bench
