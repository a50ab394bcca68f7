#include "lab/zookeeper_server.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "net/socket.h"

namespace loch::lab {
namespace {

constexpr std::chrono::seconds patience{60};

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

ZooKeeperServer::ZooKeeperServer(std::string host) : port_(std::move(host)) { start(); }

void ZooKeeperServer::start() {
  process_.reset();
  auto started = Process::start_until(
      {.words = {LOCH_SOURCE_FOLDER "/lab/zookeeper.sh", data(), port_.at().host, port_.at().port},
       .log = folder_.path() + "/log"},
      [this] { return serves(port_.at()); }, patience);
  if (!started) {
    fmt::print(stderr, "no ZooKeeper server:\n{}\n", started.error().detail);
    std::abort();
  }
  process_.emplace(std::move(*started));
}

std::uint64_t ZooKeeperServer::watches() const {
  constexpr std::string_view before_the_number = "Total watches:";
  const std::string answer = answer_to("wchs", port_.at());
  const auto found = answer.find(before_the_number);
  if (found == std::string::npos) return 0;
  return std::strtoull(answer.c_str() + found + before_the_number.size(), nullptr, 10);
}

void ZooKeeperServer::forget_everything() { std::filesystem::remove_all(data()); }

void ZooKeeperServer::pause() {
  process_->signal(SIGSTOP);
  const auto seen = process_->wait(patience);
  LOCH_CHECK(seen.has_value());
  LOCH_CHECK(seen->stopped);
}

}  // namespace loch::lab
