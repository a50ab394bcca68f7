// Files of stores that are cut short while processes have them mapped. Each test is a child of its own, since
// a process keeps what it does about SIGBUS.
#include "fabric/bus_guard.h"

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/testing/in_child.h"
#include "fabric/endpoint.h"
#include "fabric/host.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/shm/testing/shm_test.h"
#include "fabric/tcp/testing/raw_end.h"

namespace loch::fabric {
namespace {

using base::fake::give_up_root;
using base::fake::in_child;
using base::fake::outcome;
using shm::fake::mark;
using shm::fake::region_bytes;

constexpr std::uint64_t page_bytes = 4'096;

void act_on_bus_error(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  ::sigaction(SIGBUS, &action, nullptr);
}

class BusGuard : public shm::fake::ShmTest {
 protected:
  // In a process with the guard.
  static std::string in_guarded_child(const std::function<std::string()>& body) {
    return in_child([&body] {
      if (const auto survives = survive_truncation(); !survives) return outcome(survives);
      return body();
    });
  }
  [[nodiscard]] std::string file_of(const std::string& store, RegionId region) const {
    return access_.directory + "/loch." + store + "/region." + std::to_string(region);
  }
  void truncate(const std::string& store, RegionId region, std::uint64_t length_bytes) const {
    std::filesystem::resize_file(file_of(store, region), length_bytes);
  }
  [[nodiscard]] std::shared_ptr<Fabric> create(const std::string& store) const {
    return shm::create(store, access_, plan()).value();
  }
};

// Receive: a store that is cut short, and each kind of access to it. Expect: they go on, and read zeros or
// what they wrote themselves; the store says what happened to it, until it is opened anew, and others are as
// they were.
TEST_F(BusGuard, AStoreThatWasCutShortIsLostAndNoOtherIs) {
  using Access = std::function<std::uint64_t(std::byte*)>;
  const std::array<Access, 5> accesses{
      load_word,
      [](std::byte* at) {
        store_word(at, 7);
        return load_word(at) - 7;
      },
      [](std::byte* at) { return swap_word(at, 0, 1); },
      [](std::byte* at) { return add_to_word(at, 1); },
      [](std::byte* at) {
        std::uint64_t word = 1;
        copy_from_region(reinterpret_cast<std::byte*>(&word), at, sizeof word);
        return word;
      },
  };
  for (const Access& access : accesses) {
    EXPECT_EQ(in_guarded_child([&]() -> std::string {
                const auto whole = create("whole");
                const auto cut = create("cut");
                Endpoint endpoint(cut, cut->connect());
                std::byte* const at = endpoint.mapped({1, region_bytes - 8}, 8);
                if (load_word(at) != mark || any_range_lost()) return "lost before anything happened";
                truncate("cut", 1, 0);
                if (access(at) != 0) return "no zeros";
                if (!any_range_lost() || !whole->intact() || !is_whole(whole)) return "the other is lost";
                if (const auto intact = cut->intact(); intact || intact.error().code != Errc::corrupt ||
                                                       !intact.error().detail.contains(file_of("cut", 1)))
                  return "not said: " + outcome(intact);
                if (load_word(endpoint.mapped({0, 0}, 8)) != mark) return "its other region is lost, too";
                const auto anew = shm::attach("cut", access_).value();
                Endpoint others(anew, anew->connect());
                if (others.mapped({1, 0}, 8) != nullptr || !anew->intact()) return "it is not as it is";
                return "ok";
              }),
              "ok");
    std::filesystem::remove_all(access_.directory + "/loch.whole");
    std::filesystem::remove_all(access_.directory + "/loch.cut");
  }
}

// Receive: the end of a region that is cut off, which is touched. Expect: all of it is lost to this process,
// and what it writes elsewhere in it comes to nobody.
TEST_F(BusGuard, ARangeIsLostAsAWhole) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              const auto cut = create("cut");
              Endpoint endpoint(cut, cut->connect());
              std::byte* const at = endpoint.mapped({1, 0}, region_bytes);
              truncate("cut", 1, page_bytes);
              if (load_word(at + region_bytes - 8) != 0) return "no zeros";
              if (load_word(at) != 0) return "a page is not lost";
              store_word(at, 7);
              const auto anew = shm::attach("cut", access_).value();
              Endpoint others(anew, anew->connect());
              return load_word(others.mapped({1, 0}, 8)) == mark ? "ok" : "it was written to";
            }),
            "ok");
}

TEST_F(BusGuard, NothingIsLostAnyMoreOnceTheStoreIsClosed) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              for (int round = 0; round < 3; ++round) {
                {
                  const auto cut = create("cut");
                  Endpoint endpoint(cut, cut->connect());
                  std::byte* const at = endpoint.mapped({1, 0}, 8);
                  truncate("cut", 1, 0);
                  if (load_word(at) != 0 || cut->intact()) return "not lost";
                }
                if (any_range_lost()) return "lost though nobody has it";
                std::filesystem::remove_all(access_.directory + "/loch.cut");
              }
              return "ok";
            }),
            "ok");
}

// Receive: a file that is longer, and one that is shorter, but for what is touched. Expect: no difference.
TEST_F(BusGuard, WhatNobodyTouchesMakesNoDifference) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              const auto store = create("store");
              Endpoint endpoint(store, store->connect());
              std::byte* const first = endpoint.mapped({1, 0}, 8);
              std::byte* const last = endpoint.mapped({1, region_bytes - 8}, 8);
              truncate("store", 1, 2 * region_bytes);
              if (load_word(first) != mark || load_word(last) != mark) return "longer is not as before";
              store_word(last, 5);
              truncate("store", 1, page_bytes);
              if (load_word(first) != mark) return "shorter is not as before";
              store_word(first, 6);
              const auto other = shm::attach("store", access_).value();
              Endpoint others(other, other->connect());
              if (load_word(others.mapped({1, 0}, 8)) != 6) return "others do not see what is written";
              return outcome(store->intact());
            }),
            "ok");
}

// Receive: more memory of its own than the process may have. Expect: it goes on page by page.
TEST_F(BusGuard, APageIsEnoughWhereTheKernelGivesNoMore) {
  EXPECT_EQ(in_child([&]() -> std::string {
              act_on_bus_error([](int) { ::_exit(5); });
              if (!survive_truncation()) return "no guard";
              const auto store = create("store");
              Endpoint endpoint(store, store->connect());
              std::byte* const at = endpoint.mapped({1, 0}, region_bytes);
              truncate("store", 1, 0);
              constexpr rlimit limit{.rlim_cur = 64 * page_bytes, .rlim_max = 64 * page_bytes};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !give_up_root()) return "no limit";
              // By the system calls, since sanitizers do without these functions.
              if (::syscall(SYS_mlockall, MCL_FUTURE) != 0) return "no limit on what is mapped";
              const bool zeros = load_word(at) == 0 && load_word(at + 3 * page_bytes) == 0;
              ::syscall(SYS_munlockall);
              return zeros && !store->intact() ? "ok" : "no zeros, or not said";
            }),
            "ok");
}

// Receive: threads that all touch what was cut off, beside others that open and close stores. Expect: all go
// on, and whoever reads a zero finds that something is lost.
TEST_F(BusGuard, ThreadsGoOnTogether) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              constexpr int rounds = 20;
              std::atomic<bool> stop = false;
              std::atomic<int> wrong = 0;
              const auto kept = create("other");
              std::thread opens([&] {
                while (!stop) {
                  const auto other = shm::attach("other", access_).value();
                  wrong += is_whole(other) && other->intact() ? 0 : 1;
                }
              });
              for (int round = 0; round < rounds; ++round) {
                const auto cut = create("cut");
                Endpoint endpoint(cut, cut->connect());
                std::byte* const at = endpoint.mapped({1, 0}, region_bytes);
                std::vector<std::thread> threads;
                for (int i = 0; i < 3; ++i) {
                  threads.emplace_back([&, i] {
                    std::byte* const mine = at + region_bytes - 8;
                    while (load_word(mine) != 0) std::this_thread::yield();
                    wrong += any_range_lost() ? 0 : 1;
                    store_word(at + static_cast<std::uint64_t>(i) * page_bytes + 8, 1);
                  });
                }
                truncate("cut", 1, 0);
                for (std::thread& each : threads) each.join();
                wrong += cut->intact() ? 1 : 0;
                std::filesystem::remove_all(access_.directory + "/loch.cut");
              }
              stop = true;
              opens.join();
              return wrong == 0 ? "ok" : "wrong " + std::to_string(wrong);
            }),
            "ok");
}

// Receive: a fork, and a child that touches what was cut off of its private copy. Expect: it goes on, and
// what is the parent's is not lost.
TEST_F(BusGuard, TheChildOfAForkGoesOnByItself) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              const auto store = create("store");
              Endpoint endpoint(store, store->connect());
              std::byte* const at = endpoint.mapped({1, region_bytes - 8}, 8);
              const std::string child = in_child([&]() -> std::string {
                truncate("store", 1, page_bytes);
                return load_word(at) == 0 && !store->intact() ? "ok" : "not lost";
              });
              return child == "ok" ? outcome(store->intact()) : child;
            }),
            "ok");
}

// Receive: a client on another host that reads what the agent sends from where it lies, and is cut off.
// Expect: it is told of no such bytes, and the host finds out, though it is the kernel that would have read
// them.
TEST_F(BusGuard, WhatTheKernelCanNotSendIsLost) {
  EXPECT_EQ(in_guarded_child([&]() -> std::string {
              const auto here = create("store");
              const auto host = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                                             .open_store = [&](const std::string&) { return here; }})
                                    .value();
              const auto far = remote::RemoteFabric::attach(
                  {.scheme = "tcp",
                   .host = {.host = "127.0.0.1", .port = std::to_string(host->ports().at(0))},
                   .store = "store"});
              if (!far) return outcome(far);
              Endpoint endpoint(*far, (*far)->connect());
              std::vector<std::byte> bytes(2 * page_bytes);
              Operation reading = Operation::read_settled({1, page_bytes}, bytes.data(), bytes.size());
              if (const auto read = endpoint.run(tcp::raw::perform(&endpoint, {&reading, 1})); !read)
                return outcome(read);
              truncate("store", 1, 0);
              if (endpoint.run(tcp::raw::perform(&endpoint, {&reading, 1}))) return "it was sent";
              return outcome(here->intact()).contains(file_of("store", 1)) ? "ok" : "not found out";
            }),
            "ok");
}

// ---- any other SIGBUS

// Maps a file of no store that is cut short, there if it is said where, and touches it.
void touch_nothing_at(std::byte* there) {
  const base::FileDescriptor file(::memfd_create("nothing", MFD_CLOEXEC));
  const int flags = MAP_SHARED | (there != nullptr ? MAP_FIXED : 0);
  void* const at = ::mmap(there, page_bytes, PROT_READ, flags, file.get(), 0);
  if (at != MAP_FAILED) load_word(static_cast<const std::byte*>(at));
}
void touch_nothing() { touch_nothing_at(nullptr); }

TEST_F(BusGuard, AnyOtherBusErrorIsAsBefore) {
  constexpr const char* killed = "ended with status 0x7: ";
  const auto said = [](void (*handler)(int), const std::function<void()>& happens) {
    return in_child([&]() -> std::string {
      ::prctl(PR_SET_DUMPABLE, 0);  // or its status would say that there is a core
      act_on_bus_error(handler);
      if (!survive_truncation()) return "no guard";
      happens();
      return "went on";
    });
  };
  const auto sent = [] { ::raise(SIGBUS); };
  EXPECT_EQ(said(SIG_DFL, touch_nothing), killed);
  EXPECT_EQ(said(SIG_DFL, sent), killed);
  EXPECT_EQ(said(SIG_IGN, touch_nothing), killed);
  EXPECT_EQ(said(SIG_IGN, sent), "went on");
  const auto exits = [](int signal) { ::_exit(signal + 10); };
  EXPECT_EQ(said(exits, touch_nothing), "ended with status 0x1100: ");
  EXPECT_EQ(said(exits, sent), "ended with status 0x1100: ");
}

// Receive: memory of a store that the machine says is broken. Expect: it is not taken for one that was
// truncated.
TEST_F(BusGuard, BrokenMemoryIsAsBefore) {
  EXPECT_EQ(in_child([&]() -> std::string {
              act_on_bus_error([](int) { ::_exit(5); });
              if (!survive_truncation()) return "no guard";
              const auto store = create("store");
              Endpoint endpoint(store, store->connect());
              siginfo_t info{};
              info.si_signo = SIGBUS;
              info.si_code = BUS_MCEERR_AR;
              info.si_addr = endpoint.mapped({1, 0}, 8);
              ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info);
              return "went on";
            }),
            "ended with status 0x500: ");
}

// Receive: what is mapped where a store was that has been closed. Expect: it is no store's.
TEST_F(BusGuard, APlaceIsAStoresAsLongAsItIsOpen) {
  EXPECT_EQ(in_child([&]() -> std::string {
              act_on_bus_error([](int) { ::_exit(5); });
              if (!survive_truncation()) return "no guard";
              std::byte* at = nullptr;
              {
                const auto store = create("store");
                Endpoint endpoint(store, store->connect());
                at = endpoint.mapped({1, 0}, 8);
              }
              touch_nothing_at(at);
              return "went on";
            }),
            "ended with status 0x500: ");
}

TEST_F(BusGuard, AHandlerThatIsToldMoreIsToldAll) {
  EXPECT_EQ(
      in_child([]() -> std::string {
        struct sigaction action{};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = [](int, siginfo_t* info, void* context) {
          ::_exit(info->si_code == BUS_ADRERR && info->si_addr != nullptr && context != nullptr ? 5 : 6);
        };
        ::sigaction(SIGBUS, &action, nullptr);
        if (!survive_truncation()) return "no guard";
        touch_nothing();
        return "went on";
      }),
      "ended with status 0x500: ");
}

// Without the guard it is the end of the process; with it asked for twice, it is there once.
TEST_F(BusGuard, IsThereOnlyIfItIsAskedFor) {
  const auto touch = [&]() -> std::string {
    const auto store = create("store");
    Endpoint endpoint(store, store->connect());
    std::byte* const at = endpoint.mapped({1, 0}, 8);
    truncate("store", 1, 0);
    return std::to_string(load_word(at));
  };
  EXPECT_EQ(in_child([&] {
              ::prctl(PR_SET_DUMPABLE, 0);
              act_on_bus_error(SIG_DFL);
              return touch();
            }),
            "ended with status 0x7: ");
  std::filesystem::remove_all(access_.directory + "/loch.store");
  EXPECT_EQ(in_guarded_child([&] { return survive_truncation() ? touch() : "no guard"; }), "0");
}

}  // namespace
}  // namespace loch::fabric
