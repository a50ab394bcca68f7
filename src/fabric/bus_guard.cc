#include "fabric/bus_guard.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace loch::fabric {
namespace detail {

// One range, in a list that the handler reads: entries are added, used again, and never freed, all without a
// lock, so that neither the handler nor the child of a fork ever waits for one.
struct GuardedEntry {
  static constexpr std::uintptr_t is_free = 0;
  static constexpr std::uintptr_t is_taken = 1;  // by somebody who has yet to say for what

  std::atomic<std::uintptr_t> base{is_taken};
  std::atomic<std::uint64_t> length_bytes{0};
  std::atomic<bool> is_lost{false};
  GuardedEntry* next = nullptr;

  // Whether the address is in it. What it is found in stays, since it is in use; of others the length may be
  // one that comes after the base that was read, and then so does the base that is read next.
  [[nodiscard]] bool contains(std::uintptr_t address, std::uintptr_t* from, std::uint64_t* length) const {
    // acquire, all: each pairs with the release of the one that takes or gives back the entry.
    *from = base.load(std::memory_order_acquire);
    *length = length_bytes.load(std::memory_order_acquire);
    return *from > is_taken && base.load(std::memory_order_acquire) == *from && address - *from < *length;
  }
};

}  // namespace detail

namespace {

using detail::GuardedEntry;

constinit std::atomic<GuardedEntry*> entries{nullptr};
struct sigaction before{};  // what SIGBUS did; written before the handler can run

GuardedEntry* take_entry() {
  for (GuardedEntry* entry = entries.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
    std::uintptr_t expected = GuardedEntry::is_free;
    if (entry->base.compare_exchange_strong(expected, GuardedEntry::is_taken, std::memory_order_acq_rel))
      return entry;
  }
  auto* const added = new GuardedEntry;
  added->next = entries.load(std::memory_order_relaxed);
  // release: pairs with the acquire of whoever walks the list.
  while (!entries.compare_exchange_weak(added->next, added, std::memory_order_release)) {
  }
  return added;
}

// From here on the handler's: async-signal-safe functions, and system calls.

bool map_zeros(std::uintptr_t from, std::uint64_t length_bytes) {
  // Not by the function, in which a sanitizer does more than may be done here.
  return ::syscall(SYS_mmap, from, length_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != -1;
}

// False if the address is in no guarded range, or nothing can be mapped there.
bool lose_range_of(std::uintptr_t address) {
  for (GuardedEntry* entry = entries.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
    std::uintptr_t from = 0;
    std::uint64_t length = 0;
    if (!entry->contains(address, &from, &length)) continue;
    // release: pairs with the acquire of any_range_lost. Before there are zeros to be read, in any thread.
    if (!entry->is_lost.exchange(true, std::memory_order_acq_rel))
      detail::ranges_lost.fetch_add(1, std::memory_order_release);
    // Where the kernel promises memory only as far as it has some, this page alone.
    constexpr std::uintptr_t page_bytes = 4'096;
    return map_zeros(from, length) || map_zeros(address / page_bytes * page_bytes, page_bytes);
  }
  return false;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  const bool is_sent = info->si_code <= 0;  // by a process, and by no access
  if (before.sa_handler == SIG_IGN && is_sent) return;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  // The default action, which is taken when this handler has returned: by the same access, or for the signal.
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(signal, &by_default, nullptr);
  if (is_sent) ::raise(signal);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error_number = errno;
  // BUS_ADRERR: of an access to what a file does not have. Broken memory and the like are nobody's fault
  // here.
  const bool goes_on =
      info->si_code == BUS_ADRERR && lose_range_of(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!goes_on) pass_on(signal, info, context);
  errno = error_number;
}

}  // namespace

GuardedRange::GuardedRange(const std::byte* base, std::uint64_t length_bytes) : entry_(take_entry()) {
  // release, both: pair with the acquires of `contains`. The base last, by which the entry counts.
  entry_->length_bytes.store(length_bytes, std::memory_order_release);
  entry_->base.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
}

GuardedRange::~GuardedRange() {
  if (entry_ == nullptr) return;
  if (entry_->is_lost.exchange(false, std::memory_order_acq_rel))
    detail::ranges_lost.fetch_sub(1, std::memory_order_release);
  entry_->base.store(GuardedEntry::is_free, std::memory_order_release);
}

bool GuardedRange::is_lost() const {
  return entry_ != nullptr && entry_->is_lost.load(std::memory_order_acquire);
}

}  // namespace loch::fabric

namespace loch {

Result<void> survive_truncation() {
  using fabric::before;
  static const int error_number = [] {
    if (::sigaction(SIGBUS, nullptr, &before) != 0) return errno;
    struct sigaction guard{};
    guard.sa_sigaction = fabric::on_bus_error;
    guard.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&guard.sa_mask);
    return ::sigaction(SIGBUS, &guard, nullptr) == 0 ? 0 : errno;
  }();
  if (error_number == 0) return {};
  return fail(Errc::io, "survive_truncation",
              fmt::format("no handler of SIGBUS: {}", std::strerror(error_number)));
}

}  // namespace loch
