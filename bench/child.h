// bench/child: a process that does one piece of work and tells of it.
#pragma once

#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <poll.h>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <loch/error.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "lab/process.h"

namespace loch::bench {

// Killed with its owner. `News` is plain data, as it crosses a pipe. For a process of one thread.
template <class News>
class Child {
 public:
  using Tell = std::function<void(const News&)>;
  // What it returns with is heard, if it is an error.
  using Work = std::function<Result<void>(const Tell&)>;

  // `name` is for errors. Errors: io, naming the step that failed.
  static Result<Child> start(std::string name, const Work& work) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      return fail(Errc::io, "bench", fmt::format("{}: pipe2: {}", name, std::strerror(errno)));
    base::FileDescriptor ear(ends[0]);
    const base::FileDescriptor mouth(ends[1]);
    auto process = lab::Process::fork([&] { return be_child(mouth.get(), work); });
    if (!process) return std::unexpected(std::move(process.error()));
    return Child(std::move(name), std::move(*process), std::move(ear));
  }

  // The next that it tells. Errors: that of its work; timed_out; io when it died.
  [[nodiscard]] Result<News> hear(std::uint64_t wait_ns) const {
    pollfd waiting{.fd = ear_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(wait_ns / base::millisecond_ns)) <= 0)
      return fail(Errc::timed_out, "bench", fmt::format("{}: a process is silent", name_));
    Told told;
    if (::read(ear_.get(), &told, sizeof told) != sizeof told)
      return fail(Errc::io, "bench", fmt::format("{}: a process died", name_));
    if (told.failure[0] != '\0') return fail(told.code, "bench", told.failure.data());
    return told.news;
  }

 private:
  struct Told {
    News news{};
    Errc code = Errc::io;
    std::array<char, 256> failure{};  // empty: none
  };
  static_assert(std::is_trivially_copyable_v<Told>);
  static_assert(sizeof(Told) <= PIPE_BUF);  // so it is written as a whole

  Child(std::string name, lab::Process process, base::FileDescriptor ear)
      : name_(std::move(name)), process_(std::move(process)), ear_(std::move(ear)) {}

  static int be_child(int mouth, const Work& work) {
    const auto tell = [mouth](const Told& told) {
      // Who does not hear it hears of the end of this process.
      if (::write(mouth, &told, sizeof told) != sizeof told) ::_exit(1);
    };
    if (const auto done = work([&](const News& news) { tell({.news = news}); }); !done) {
      Told told{.code = done.error().code};
      const std::string& detail = done.error().detail;
      detail.copy(told.failure.data(), told.failure.size() - 1);
      tell(told);
    }
    return 0;
  }

  std::string name_;
  lab::Process process_;
  base::FileDescriptor ear_;
};

}  // namespace loch::bench
