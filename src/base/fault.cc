#include "base/fault.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace loch::base {
namespace {

constexpr std::array points = {
    // memory: items and blocks are taken, and let go of
    "alloc.item_claimed", "alloc.items_claimed", "alloc_here.item_claimed", "alloc.block_leased",
    "alloc.large_leased", "alloc.segment_added", "retire.before_mark", "retire_here.before_mark",
    "free.before_count", "free_large.after_parts",
    // memory: blocks are looked through, and those of the dead
    "sweep.after_lease", "sweep.before_free", "sweep.before_return", "settle.before_return",
    "settle.before_bury",
    // hash: writes; `here` are the plain steps on mapped memory, `far` and `together` those of other hosts
    "put.item_written", "put.before_update", "put.after_update", "put.before_home", "put.after_home",
    "put.after_pending", "put.before_commit", "put.after_commit", "put.before_withdraw", "put.after_withdraw",
    "put_here.item_written", "put_here.before_update", "put_here.after_update", "put_far.item_written",
    "put_far.before_update", "put_together.before_write", "put_together.item_written",
    "put_together.after_pending", "put_together.before_update", "put_together.before_home",
    "put_together.after_home", "put_together.before_commit", "put_together.after_commit",
    "remove.before_unlink", "remove.after_unlink",
    // hash: any of its compare-swaps, after the last look whether it may still be done
    "swap.before_cas",
    // hash: moves
    "resolve.before_cas", "resolve.after_cas", "move.before_announce", "move.after_announce",
    "move.after_place", "move.after_mark", "move.after_commit", "move.after_clear",
    // hash: growth
    "grow.before_start", "grow.after_start", "split.after_birth", "split.before_flip", "split.after_flip",
    "split_empty.before_flip", "split_empty.after_flip", "split_together.after_births", "grow.before_finish",
    "grow.after_finish",
    // hash: collections
    "collect.before_forget", "reclaim.after_mark",
    // sessions
    "session.store_found", "session.opened"};

constexpr std::array of_handovers = {"handover.after_close", "handover.after_slots", "handover.after_left"};

bool is_listed(std::string_view name) {
  return std::ranges::find(points, name) != points.end() ||
         std::ranges::find(of_handovers, name) != of_handovers.end();
}

struct Armed {
  std::string name;
  int signal = 0;
  std::atomic<int> countdown{0};

  Armed() {
    const char* text = std::getenv("LOCH_FAULT");
    if (text == nullptr) return;
    const std::string_view spec(text);
    const auto colon = spec.find(':');
    name = spec.substr(0, colon);
    const std::string_view rest = colon == std::string_view::npos ? "" : spec.substr(colon + 1);
    const auto colon2 = rest.find(':');
    const std::string_view action = rest.substr(0, colon2);
    signal = action == "kill" ? SIGKILL : action == "stop" ? SIGSTOP : 0;
    int nth = 1;
    if (colon2 != std::string_view::npos) {
      std::from_chars(rest.data() + colon2 + 1, rest.data() + rest.size(), nth);
    }
    if (!is_listed(name)) {
      std::fprintf(stderr, "loch: LOCH_FAULT='%s': no such point; src/base/fault.cc lists them\n", text);
      std::exit(2);
    }
    if (signal == 0 || nth < 1) {
      std::fprintf(stderr, "loch: LOCH_FAULT='%s': want POINT:kill or POINT:stop, with :N for the Nth time\n",
                   text);
      std::exit(2);
    }
    countdown = nth;
  }
};

std::atomic<void (*)(const char*)> hook = nullptr;

}  // namespace

std::span<const char* const> fault_points() { return points; }
std::span<const char* const> handover_points() { return of_handovers; }

void set_fault_hook(void (*new_hook)(const char*)) { hook.store(new_hook, std::memory_order_release); }

void fault_hit(const char* name) {
  if (const auto call = hook.load(std::memory_order_acquire); call != nullptr) return call(name);
  static Armed armed;
  if (armed.signal == 0 || armed.name != name) return;
  if (armed.countdown.fetch_sub(1) == 1) kill(getpid(), armed.signal);
}

}  // namespace loch::base
