// What becomes of host and client when an RDMA device goes: in which order they let go of what is on it, and
// that the host lends again when there is one. For devices as those of verbs_test.cc. No device really goes:
// librdmacm is asked through the functions here.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <mutex>
#include <rdma/rdma_cma.h>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/testing/comes_true.h"
#include "fabric/remote/link.h"
#include "fabric/testing/conformance.h"
#include "fabric/verbs/queue_pair.h"

namespace {

// What the library has under this name.
template <class Function>
Function* in_library(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// What each thread lets go of while this is there, in its order.
class Ends {
 public:
  using ByThread = std::map<std::thread::id, std::vector<std::string>>;

  Ends() {
    const std::scoped_lock lock(mutex);
    wanted = true;
    noted.clear();
  }
  ~Ends() {
    const std::scoped_lock lock(mutex);
    wanted = false;
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  [[nodiscard]] static ByThread all() {
    const std::scoped_lock lock(mutex);
    return noted;
  }

  // One thing ends, and with it perhaps others that the library has made for it, which are not noted.
  class One {
   public:
    explicit One(const char* what) : is_outermost_(!std::exchange(is_within, true)) {
      const std::scoped_lock lock(mutex);
      if (wanted && is_outermost_) noted[std::this_thread::get_id()].emplace_back(what);
    }
    ~One() {
      if (is_outermost_) is_within = false;
    }
    One(const One&) = delete;
    One& operator=(const One&) = delete;

   private:
    const bool is_outermost_;
  };

 private:
  static inline std::mutex mutex;
  static inline bool wanted = false;
  static inline ByThread noted;
  static inline thread_local bool is_within = false;
};

// A listener whose device is said to be gone, once.
class Loss {
 public:
  // Any thread.
  static void of_last_listener() { at = of.load()->channel; }

  static void note_listener(rdma_cm_id* id) { of = id; }
  // Null if there is nothing to say there.
  static rdma_cm_event* next(rdma_event_channel* channel) {
    rdma_event_channel* expected = channel;
    if (!at.compare_exchange_strong(expected, nullptr)) return nullptr;
    event.id = of;
    event.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
    return &event;
  }
  static bool is_it(const rdma_cm_event* other) { return other == &event; }

 private:
  static inline std::atomic<rdma_cm_id*> of = nullptr;
  static inline std::atomic<rdma_event_channel*> at = nullptr;
  static inline rdma_cm_event event{};
};

// No memory can be registered for others to read until some is let go of.
std::atomic<bool> is_memory_short = false;

}  // namespace

// All of this program comes by these, and the libraries themselves do.
extern "C" {

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* at, std::size_t length, std::uint64_t iova, unsigned access) {
  if ((access & IBV_ACCESS_REMOTE_READ) != 0 && is_memory_short) {
    errno = ENOMEM;
    return nullptr;
  }
  return in_library<decltype(::ibv_reg_mr_iova2)>("ibv_reg_mr_iova2")(domain, at, length, iova, access);
}

void rdma_destroy_qp(rdma_cm_id* id) {
  const Ends::One one("queue pair");
  in_library<decltype(::rdma_destroy_qp)>("rdma_destroy_qp")(id);
}
int rdma_destroy_id(rdma_cm_id* id) {
  const Ends::One one("identifier");
  return in_library<decltype(::rdma_destroy_id)>("rdma_destroy_id")(id);
}
int ibv_dereg_mr(ibv_mr* memory) {
  const Ends::One one("memory");
  is_memory_short = false;
  return in_library<decltype(::ibv_dereg_mr)>("ibv_dereg_mr")(memory);
}
int ibv_destroy_cq(ibv_cq* queue) {
  const Ends::One one("completion queue");
  return in_library<decltype(::ibv_destroy_cq)>("ibv_destroy_cq")(queue);
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const Ends::One one("completion channel");
  return in_library<decltype(::ibv_destroy_comp_channel)>("ibv_destroy_comp_channel")(channel);
}
int ibv_dealloc_pd(ibv_pd* domain) {
  const Ends::One one("protection domain");
  return in_library<decltype(::ibv_dealloc_pd)>("ibv_dealloc_pd")(domain);
}

int rdma_listen(rdma_cm_id* id, int backlog) {
  Loss::note_listener(id);
  return in_library<decltype(::rdma_listen)>("rdma_listen")(id, backlog);
}
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (rdma_cm_event* loss = Loss::next(channel); loss != nullptr) {
    *event = loss;
    return 0;
  }
  return in_library<decltype(::rdma_get_cm_event)>("rdma_get_cm_event")(channel, event);
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  if (Loss::is_it(event)) return 0;
  return in_library<decltype(::rdma_ack_cm_event)>("rdma_ack_cm_event")(event);
}

}  // extern "C"

namespace loch::fabric::conformance {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "127.0.0.1";
}

class DeviceLoss : public testing::Test {
 protected:
  void start(const std::vector<std::string>& addresses) {
    Host::Options options{
        .verbs = true,
        .open_store = [this, here = files_.attach()](
                          const std::string& name) { return name == "store" ? here : files_.attach(); },
        .log =
            [this](Host::Level, const std::string& text) {
              const std::scoped_lock lock(mutex_);
              told_.push_back(text);
            }};
    for (const std::string& address : addresses) options.listen.push_back({.host = address, .port = "0"});
    host_ = Host::start(std::move(options)).value();
    for (std::size_t i = 0; i < addresses.size(); ++i)
      at_.push_back({.host = addresses[i], .port = std::to_string(host_->ports()[i])});
  }
  std::unique_ptr<Session> session(std::size_t address = 0, std::string_view store = "store") {
    const std::string url = fmt::format("verbs://{}/{}", at_[address].text(), store);
    return std::make_unique<Session>(
        fabric::attach(url, {.source = environment("LOCH_TEST_VERBS_CLIENT")}).value());
  }
  bool was_told(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::any_of(told_, [text](const std::string& each) { return each.contains(text); });
  }

  static bool has_ended(const Ends::ByThread::value_type& of, std::string_view thing) {
    return std::ranges::find(of.second, thing) != of.second.end();
  }

  const Address word_{small_region, 8};
  ShmWorld files_{{.regions = {{small_region, small_bytes}},
                   .fill = [](std::span<const Mapping> /*regions*/) {},
                   .atomics = Atomics::device}};
  std::mutex mutex_;
  std::vector<std::string> told_;
  std::vector<net::HostPort> at_;
  std::unique_ptr<Host> host_;
};

// Receive: a session that ends. Expect: at either end its identifier is let go of last, since a device that
// is gone is closed with it.
TEST_F(DeviceLoss, AnIdentifierEndsAfterAllThatIsOnItsDevice) {
  start({environment("LOCH_TEST_VERBS_HOST")});
  auto client = session();
  ASSERT_TRUE(client->read_word(word_).has_value());
  const Ends ends;
  client = nullptr;
  const auto is_done = [](const auto& each) {
    return has_ended(each, "protection domain") && each.second.back() == "identifier";
  };
  EXPECT_TRUE(base::fake::comes_true([&] {
    const auto all = Ends::all();
    return all.size() == 2 && std::ranges::all_of(all, is_done);
  }));
  for (const auto& [thread, what] : Ends::all()) {
    EXPECT_THAT(what, IsSupersetOf({"queue pair", "memory", "completion queue", "completion channel",
                                    "protection domain", "identifier"}));
    EXPECT_EQ(what.front(), "queue pair");
    EXPECT_EQ(what.back(), "identifier");
  }
}

// Receive: a session that ends, and another one in the next seconds. Expect: what was registered for the
// first is there for the second one; once that has ended, too, it is let go of.
TEST_F(DeviceLoss, WhatWasLentIsThereForWhoComesBack) {
  start({environment("LOCH_TEST_VERBS_HOST")});
  const auto has_let_go = [] {
    return std::ranges::any_of(Ends::all(), [](const auto& each) {
      return each.first != std::this_thread::get_id() && has_ended(each, "memory");
    });
  };
  const auto come_and_go = [&] {
    ASSERT_TRUE(session()->read_word(word_).has_value());
    ASSERT_TRUE(base::fake::comes_true([&] { return host_->counts().sessions == 0; }));
  };
  const Ends ends;
  for (int i = 0; i < 3; ++i) come_and_go();
  EXPECT_FALSE(has_let_go());
  EXPECT_TRUE(base::fake::comes_true(has_let_go));
  come_and_go();
}

// Receive: what was lent and is not used now, and a session of another store for which there is no room
// beside it. Expect: it gives way.
TEST_F(DeviceLoss, WhatNobodyUsesGivesWay) {
  start({environment("LOCH_TEST_VERBS_HOST")});
  ASSERT_TRUE(session()->read_word(word_).has_value());
  ASSERT_TRUE(base::fake::comes_true([&] { return host_->counts().sessions == 0; }));
  is_memory_short = true;
  EXPECT_TRUE(session(0, "other")->read_word(word_).has_value());
  EXPECT_FALSE(is_memory_short);
}

// Receive: a client that is turned away when the host has made something for it already. Expect: as above.
TEST_F(DeviceLoss, AnIdentifierThatIsRefusedEndsLastToo) {
  start({environment("LOCH_TEST_VERBS_HOST"), environment("LOCH_TEST_VERBS_HOST_TOO")});
  const auto first = session(0);
  ASSERT_TRUE(first->write_word(word_, 1).has_value());
  const Ends ends;
  EXPECT_THAT(session(1)->read_word(word_).error().detail, HasSubstr("refuses the queue pair"));
  const auto is_done = [](const auto& each) { return each.second.back() == "identifier"; };
  EXPECT_TRUE(base::fake::comes_true([&] {
    const auto all = Ends::all();
    return all.size() == 2 && std::ranges::all_of(all, is_done);
  }));
  for (const auto& [thread, what] : Ends::all())
    EXPECT_THAT(what, IsSupersetOf({"completion channel", "protection domain", "identifier"}));
}

// Receive: the device of a host's address goes. Expect: the host says so, lends there again as soon as it can
// listen, and says that, too; what has come before goes on.
TEST_F(DeviceLoss, AHostLendsAgainWhenItHasADeviceAgain) {
  start({environment("LOCH_TEST_VERBS_HOST")});
  const auto before = session();
  ASSERT_TRUE(before->write_word(word_, 1).has_value());
  Loss::of_last_listener();
  const remote::Target target{.scheme = "tcp", .host = at_[0], .store = "store"};
  std::ignore = remote::Link::open(target);  // so that it looks
  EXPECT_TRUE(base::fake::comes_true([&] { return was_told("its RDMA device is gone"); }));
  EXPECT_TRUE(base::fake::comes_true([&] { return was_told("has an RDMA device again"); }));
  EXPECT_EQ(session()->read_word(word_).value(), 1U);
  EXPECT_EQ(before->read_word(word_).value(), 1U);
}

// Receive: a client that comes to an address where nobody lends. Expect: it is told that, and not that a host
// would not have it.
TEST_F(DeviceLoss, WhereNobodyLendsAClientIsToldSo) {
  start({environment("LOCH_TEST_VERBS_HOST")});
  host_ = nullptr;
  const auto pair = verbs::QueuePair::connect(at_[0], environment("LOCH_TEST_VERBS_CLIENT"),
                                              std::string(verbs::token_digits, '0'),
                                              base::Clock().now() + 10 * base::second_ns);
  ASSERT_FALSE(pair.has_value());
  EXPECT_EQ(pair.error().code, Errc::unavailable);
  EXPECT_THAT(pair.error().detail, HasSubstr("nobody lends over RDMA at that address"));
  EXPECT_THAT(pair.error().detail, Not(HasSubstr("log")));
}

}  // namespace
}  // namespace loch::fabric::conformance
