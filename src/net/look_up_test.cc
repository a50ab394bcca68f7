#include "net/look_up.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "net/testing/name_server.h"

namespace loch::net {
namespace {

constexpr base::Nanos soon_ns = 300 * base::millisecond_ns;

base::Nanos in(base::Nanos time) { return base::Clock().now() + time; }

using Address = std::array<char, 4>;

// A question that came to the name server.
struct Question {
  std::array<char, 512> packet{};
  std::size_t end = 0;
  SocketAddress who{.length = sizeof(sockaddr_storage)};
  std::string name;
  bool is_for_ipv4 = false;

  // With the address, if it is one for an address of IPv4, and else with nothing.
  void answer(int server, const Address& address) {
    std::array<char, 16> record = {'\xc0', 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4};
    std::ranges::copy(address, record.begin() + 12);
    // An answer, without recursion; one question, the records that follow, and no others.
    const std::array<char, 10> answered = {'\x81', '\x80', 0, 1, 0, static_cast<char>(is_for_ipv4),
                                           0,      0,      0, 0};
    std::memcpy(&packet[2], answered.data(), answered.size());
    std::memcpy(&packet[end], record.data(), record.size());
    ::sendto(server, packet.data(), end + (is_for_ipv4 ? record.size() : 0), 0, who.get(), who.length);
  }
};

Question next_question(int server) {
  constexpr std::size_t header_bytes = 12;
  constexpr std::size_t record_bytes = 16;
  for (;;) {
    Question next;
    const ssize_t length = ::recvfrom(server, next.packet.data(), next.packet.size() - record_bytes, 0,
                                      next.who.get(), &next.who.length);
    if (length < static_cast<ssize_t>(header_bytes)) continue;
    next.end = header_bytes;
    while (next.packet[next.end] != 0) next.end += 1 + static_cast<std::size_t>(next.packet[next.end]);
    next.name.assign(&next.packet[header_bytes], next.end - header_bytes);
    next.is_for_ipv4 = next.packet[next.end + 2] == 1;
    next.end += 5;
    return next;
  }
}

// Answers every question so late.
[[noreturn]] void answer_late(int server, std::chrono::milliseconds delay) {
  for (;;) {
    std::thread([server, delay, question = next_question(server)]() mutable {
      std::this_thread::sleep_for(delay);
      question.answer(server, {'\xc0', 0, 2, 7});
    }).detach();
  }
}

// Answers nothing before it has been asked for so many names, and then with an address of this host.
[[noreturn]] void answer_when_all_are_asked_for(int server, std::size_t names_count) {
  std::set<std::string> names;
  std::vector<Question> held;
  for (;;) {
    held.push_back(next_question(server));
    names.insert(held.back().name);
    if (names.size() < names_count) continue;
    for (Question& each : std::exchange(held, {})) each.answer(server, {127, 0, 0, 1});
  }
}

enum class Outcome : std::uint8_t { as_expected, something_else, may_not };

Outcome in_child(const std::function<bool(int server)>& is_as_expected) {
  const pid_t child = ::fork();
  if (child == 0) {
    const base::FileDescriptor server = fake::become_name_server();
    if (!server.is_open()) ::_exit(static_cast<int>(Outcome::may_not));
    const bool is = is_as_expected(server.get());
    ::_exit(static_cast<int>(is ? Outcome::as_expected : Outcome::something_else));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return Outcome::something_else;
  return static_cast<Outcome>(WEXITSTATUS(status));
}

bool is_not_in_time(const auto& answer, const HostPort& at) {
  const bool is = !answer && answer.error().code == Errc::unavailable &&
                  answer.error().detail.contains(at.text() + ": the name was not looked up in time");
  if (!is && !answer) fmt::print("{}\n", answer.error().message());
  return is;
}

// Given: a name server that does not answer, if this process may have a network and mounts of its own.
// Expect: nobody waits for as long as the resolver does.
TEST(LookUp, ANameServerThatDoesNotAnswerIsNotWaitedFor) {
  const auto outcome = in_child([](int) {
    const HostPort far{.host = "far.example", .port = "1"};
    return is_not_in_time(connect(far, "", in(soon_ns)), far);
  });
  if (outcome == Outcome::may_not) GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(outcome, Outcome::as_expected);
}

// Given: one that does not answer. Expect: names that are not known in time are no reason to miss an address
// of this host's.
TEST(LookUp, ThisHostIsFoundAmongNamesThatAreNotAnswered) {
  const auto outcome = in_child([](int) {
    const std::array<HostPort, 5> hosts{{{.host = "a.example", .port = "1"},
                                         {.host = "b.example", .port = "1"},
                                         {.host = "192.0.2.7", .port = "1"},
                                         {.host = "c.example", .port = "1"},
                                         {.host = "127.0.0.1", .port = "1"}}};
    const base::Nanos deadline = in(soon_ns);
    return first_of_this_host(hosts, deadline) == 4 &&
           !first_of_this_host(std::span(hosts).first(4), deadline);
  });
  if (outcome == Outcome::may_not) GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(outcome, Outcome::as_expected);
}

// Given: a name server that answers for none before it is asked for all. Expect: it is.
TEST(LookUp, NamesOfHostsAreLookedUpTogether) {
  const auto outcome = in_child([](int server) {
    const std::array<HostPort, 3> hosts{{{.host = "a.example", .port = "1"},
                                         {.host = "b.example", .port = "1"},
                                         {.host = "c.example", .port = "1"}}};
    std::thread(answer_when_all_are_asked_for, server, hosts.size()).detach();
    return first_of_this_host(hosts, in(look_up_max_ns)) == 0;
  });
  if (outcome == Outcome::may_not) GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(outcome, Outcome::as_expected);
}

// Given: one that answers later than anybody waits. Expect: the answer is there for who asks again; and for a
// second name, which was begun with the first, at once.
TEST(LookUp, AnAnswerThatComesLaterIsForWhoAsksNext) {
  const auto outcome = in_child([](int server) {
    std::thread(answer_late, server, std::chrono::milliseconds(soon_ns / base::millisecond_ns)).detach();
    const HostPort first{.host = "far.example", .port = "1"};
    const HostPort second{.host = "farther.example", .port = "2"};
    begin_look_up(second);
    if (!is_not_in_time(look_up_all(first, in(soon_ns / 10)), first)) return false;
    Result<std::vector<SocketAddress>> found;
    for (const base::Nanos end = in(10 * base::second_ns); base::Clock().now() < end && found->empty();) {
      auto again = look_up_all(first, in(soon_ns / 10));
      if (again) found = std::move(again);
    }
    const auto begun_before = look_up_all(second, in(base::second_ns));
    const auto is_right = [](const Result<std::vector<SocketAddress>>& addresses) {
      return addresses && addresses->size() == 1 && addresses->front().storage.ss_family == AF_INET;
    };
    return is_right(found) && is_right(begun_before);
  });
  if (outcome == Outcome::may_not) GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(outcome, Outcome::as_expected);
}

// It lets no process that was forked beside threads have any of its own.
#if !__has_feature(thread_sanitizer)
// Receive: a process that forks while threads of it look names up. Expect: a fork does so too, though they
// had the lock.
TEST(LookUp, AForkWaitsForNobodyWhomItHasNot) {
  const auto outcome = in_child([](int) {
    const std::jthread looks_up([](const std::stop_token& stop) {
      while (!stop.stop_requested()) begin_look_up({.host = "far.example", .port = "1"});
    });
    constexpr int forks = 100;
    for (int i = 0; i < forks; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(5);
        const HostPort other{.host = "farther.example", .port = "1"};
        ::_exit(look_up_all(other, in(base::millisecond_ns)) ? 1 : 0);
      }
      int status = 0;
      if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return false;
    }
    return true;
  });
  if (outcome == Outcome::may_not) GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(outcome, Outcome::as_expected);
}
#endif

}  // namespace
}  // namespace loch::net
