// How long a Store takes to close.
#include <barrier>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "base/testing/comes_true.h"
#include "fabric/fabric.h"
#include "fabric/host.h"
#include "lab/process.h"
#include "lab/temp_folder.h"
#include "net/testing/reserved_port.h"

namespace loch {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using Clock = std::chrono::steady_clock;

// Receive: a store that several threads have used, whose host does not answer any more. Expect: it is closed
// in the time of a few calls, and not of one for each thread.
TEST(Closing, AStoreOfAHostThatDoesNotAnswer) {
  const auto folder = lab::TempFolder::make("/dev/shm").value();
  const net::fake::ReservedPort port;
  auto host = lab::Process::fork([&] {
    Options options;
    options.directory = folder.path();
    options.huge_pages = false;
    const auto store = Store::open("shm://store", options);
    const auto lends = fabric::Host::start(
        {.listen = {port.at()}, .open_store = [&](const std::string& name) {
           return fabric::attach("shm://" + name, {.directory = folder.path(), .huge_pages = false});
         }});
    while (store && lends) ::pause();
    return 1;
  });
  ASSERT_TRUE(host.has_value()) << host.error().message();

  constexpr auto timeout = 1s;
  constexpr int threads_count = 24;
  Options options;
  options.mode = Options::Mode::attach;
  options.timeout = timeout;
  std::optional<Store> store;
  ASSERT_TRUE(comes_true([&] {
    auto opened = Store::open(fmt::format("tcp://{}/store", port.at().text()), options);
    if (opened) store.emplace(std::move(*opened));
    return opened.has_value();
  }));
  {
    std::barrier all_have_sessions(threads_count);
    std::vector<std::jthread> threads;
    for (int i = 0; i < threads_count; ++i) {
      threads.emplace_back([&] {
        EXPECT_TRUE(store->put("key", "value").has_value());
        all_have_sessions.arrive_and_wait();
      });
    }
  }
  host->signal(SIGSTOP);
  const auto began = Clock::now();
  store.reset();
  EXPECT_LT(Clock::now() - began, timeout * threads_count / 2);
  std::ignore = host->kill();
}

}  // namespace
}  // namespace loch
