#include "cmd/terminal.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/output.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler stores it");

// A call that was about to wait when the signal came is not ended by that one, but by one of these.
void interrupt_again(int /*signal_number*/) { ::alarm(1); }

void note_interrupt(int signal_number) {
  interrupting_signal.store(signal_number, std::memory_order_relaxed);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::alarm(1);
}

void write_stderr(std::string_view text) {
  Output out(STDERR_FILENO);
  out.write(text);
  out.flush();
}

// The longest line that does not wrap; any, if the terminal does not say how wide it is.
std::size_t columns_max() {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col - 1U : std::numeric_limits<std::size_t>::max();
}

// One line from standard input, at most 256 bytes of it.
Parsed<std::string> read_answer(Clock::time_point deadline) {
  std::string answer;
  while (answer.size() < 256) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return std::unexpected("no answer in time");
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
    if (ready < 0 && errno != EINTR) return std::unexpected(std::strerror(errno));
    if (ready <= 0) continue;
    char character = 0;
    const ssize_t got = ::read(STDIN_FILENO, &character, 1);
    if (got == 0 || (got == 1 && character == '\n')) return answer;
    if (got < 0 && errno != EINTR) return std::unexpected(std::strerror(errno));
    if (got == 1) answer += character;
  }
  return answer;
}

}  // namespace

Parsed<bool> ask(std::string_view question, std::chrono::milliseconds timeout) {
  write_stderr(fmt::format("{} [y/N] ", question));
  auto answer = read_answer(Clock::now() + timeout);
  if (!answer) {
    write_stderr("\n");
    return std::unexpected(answer.error());
  }
  std::ranges::transform(*answer, answer->begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return *answer == "y" || *answer == "yes";
}

void watch_for_interrupts() {
  struct sigaction action{};
  ::sigemptyset(&action.sa_mask);
  action.sa_handler = interrupt_again;
  ::sigaction(SIGALRM, &action, nullptr);
  // Of two that come together the second waits until the handler of the first has run.
  ::sigaddset(&action.sa_mask, SIGINT);
  ::sigaddset(&action.sa_mask, SIGTERM);
  action.sa_handler = note_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return interrupting_signal.load(std::memory_order_relaxed) != 0; }

void end_by_interrupt() {
  const int signal_number = interrupting_signal.load(std::memory_order_relaxed);
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
  ::_exit(128 + signal_number);
}

bool wait_unless_interrupted(std::chrono::milliseconds duration) {
  // A signal that comes before poll would not end it, so look again every 100 ms.
  constexpr std::chrono::milliseconds look_again{100};
  const auto end = Clock::now() + duration;
  while (!interrupted()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return true;
    ::poll(nullptr, 0, static_cast<int>(std::min(left, look_again).count()));
  }
  return false;
}

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

Progress::Progress(std::string title, std::optional<std::uint64_t> total, bool shown)
    : title_(std::move(title)), total_(total), shown_(shown), start_(Clock::now()), drawn_(start_) {}

Progress::~Progress() { erase(); }

void Progress::update(std::uint64_t done, std::uint64_t items) {
  if (!shown_) return;
  const auto now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  std::string line = title_;
  std::string bar;
  std::string rest;
  if (total_ && *total_ > 0) {
    constexpr std::size_t width = 24;
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(*total_));
    const auto filled = static_cast<std::size_t>(part * width);
    line += fmt::format(" {:3.0f}%", part * 100);
    bar = fmt::format(" [{:#<{}}{:.<{}}]", "", filled, "", width - filled);
    if (part > 0 && part < 1) {
      const double left_ms = elapsed_s * (1 - part) / part * 1000;
      rest = fmt::format(" {} left",
                         human_duration(std::chrono::milliseconds(static_cast<std::int64_t>(left_ms))));
    }
  }
  rest +=
      fmt::format("  {}, {}", how_many(items, "item"), human_rate(static_cast<double>(items) / elapsed_s));
  // What wrapped would not be erased.
  const std::size_t columns = columns_max();
  if (line.size() + bar.size() + rest.size() <= columns) line += bar;
  line += rest;
  write_stderr("\r" + line.substr(0, columns) + "\x1b[K");
  visible_ = true;
}

void Progress::erase() {
  if (!visible_) return;
  write_stderr("\r\x1b[K");
  visible_ = false;
}

}  // namespace loch::cmd
