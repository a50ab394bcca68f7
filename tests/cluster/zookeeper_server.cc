#include "tests/cluster/zookeeper_server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/socket.h"

namespace loch::tests {
namespace {

constexpr base::Nanos patience_ns = 60 * base::second_ns;
constexpr std::chrono::milliseconds pause_between_looks{50};

// To one of the words of four letters; what there is of it in time.
std::string answer_to(std::string_view question, const net::HostPort& at) {
  const base::Nanos deadline = base::Clock().now() + base::second_ns;
  const auto socket = net::connect(at, "", deadline);
  if (!socket || !net::wait_for(socket->get(), POLLOUT, deadline)) return "";
  if (::send(socket->get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  std::array<char, 512> part{};
  while (net::wait_for(socket->get(), POLLIN, deadline)) {
    const ssize_t got = ::recv(socket->get(), part.data(), part.size(), 0);
    if (got <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

bool serves(const net::HostPort& at) { return answer_to("srvr", at).contains("Mode: standalone"); }

}  // namespace

ZooKeeperServer::ZooKeeperServer(std::string host) : port_(std::move(host)) {
  static std::atomic<int> servers = 0;
  folder_ =
      std::filesystem::temp_directory_path() / fmt::format("loch-zookeeper.{}.{}", ::getpid(), ++servers);
  std::filesystem::create_directories(folder_);
  start();
}

ZooKeeperServer::~ZooKeeperServer() {
  process_.reset();
  std::filesystem::remove_all(folder_);
}

void ZooKeeperServer::start() {
  const std::string script = LOCH_SOURCE_FOLDER "/tests/cluster/zookeeper.sh";
  process_.emplace(Command{.program = "/usr/bin/setpriv",
                           .arguments = {"--pdeathsig", "KILL", script, (folder_ / "data").string(),
                                         port_.at().host, port_.at().port},
                           .environment = {},
                           .output = folder_ / "log"});
  const base::Clock clock;
  const base::Nanos deadline = clock.now() + patience_ns;
  while (!serves(port_.at())) {
    if (!process_->wait(pause_between_looks) && clock.now() < deadline) continue;
    fmt::print(stderr, "no ZooKeeper server:\n{}\n", process_->output());
    std::abort();
  }
}

std::uint64_t ZooKeeperServer::watches() const {
  constexpr std::string_view before_the_number = "Total watches:";
  const std::string answer = answer_to("wchs", port_.at());
  const auto found = answer.find(before_the_number);
  if (found == std::string::npos) return 0;
  return std::strtoull(answer.c_str() + found + before_the_number.size(), nullptr, 10);
}

void ZooKeeperServer::kill() {
  process_->signal(SIGKILL);
  await([](const Ending& seen) { return !seen.stopped; });
}

void ZooKeeperServer::await(bool (*is_it)(const Ending&)) {
  const base::Clock clock;
  const base::Nanos deadline = clock.now() + patience_ns;
  // Other threads of the test may be given the signal that ends a wait early, so each is short.
  for (auto seen = process_->wait(pause_between_looks); !seen || !is_it(*seen);
       seen = process_->wait(pause_between_looks))
    LOCH_CHECK(clock.now() < deadline);
}

void ZooKeeperServer::forget_everything() { std::filesystem::remove_all(folder_ / "data"); }

void ZooKeeperServer::pause() {
  process_->signal(SIGSTOP);
  await([](const Ending& seen) { return seen.stopped; });
}
void ZooKeeperServer::resume() { process_->signal(SIGCONT); }

}  // namespace loch::tests
