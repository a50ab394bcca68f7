#include "fabric/sim/sim_session.h"

#include <algorithm>

#include "base/planted.h"
#include "fabric/sim/sim_fabric.h"

namespace loch::fabric::sim {
namespace {

// As the fencer's.
constexpr base::Nanos again_after_ns = base::second_ns;

// Until another host is asked: soon, or when the fencer has waited for some that do not answer, a second each
// and for each session.
base::Nanos draw_wait(base::Random& random) {
  return random.below(random.below(2) == 0 ? 5 * base::millisecond_ns : 10 * base::second_ns);
}

}  // namespace

SimSession::~SimSession() { fabric_.sim().condemned_ -= awaited_.size(); }

// Unless the process has gone with its fabric.
template <class What>
void SimSession::after(base::Nanos wait_ns, What what) {
  fabric_.sim().simulation().after(wait_ns, [weak = weak_from_this(), what] {
    if (const auto self = weak.lock()) what(*self);
  });
}

base::Nanos SimSession::last_change_ns() const { return fabric_.sim().network.delay_min_ns + 2; }

void SimSession::end_at(std::uint32_t node) {
  if (has_ended_at(node) || (reached_ & node_bit(node)) == 0) return;
  ended_ |= node_bit(node);
  // One that holds no number there has seen nothing there that it could rely on elsewhere.
  if (std::ranges::none_of(clients_, [node](auto client) { return node_of_client(client) == node; })) return;
  awaited_[node] = reached_ & ~node_bit(node);
  ++fabric_.sim().condemned_;
  after(last_change_ns(), [node](SimSession& self) { self.condemn(node); });
}

void SimSession::end_everywhere() {
  for (std::uint32_t node = 0; node < node_count_max; ++node) end_at(node);
}

void SimSession::condemn(std::uint32_t node) {
  const NodeSet others = awaited_[node];
  if (others == 0 || base::planted(base::Planted::let_go_before_others)) return let_go(node);
  for (std::uint32_t other = 0; other < node_count_max; ++other) {
    if ((others & node_bit(other)) == 0) continue;
    after(draw_wait(fabric_.sim().simulation().random()),
          [node, other](SimSession& self) { self.ask(node, other); });
  }
}

void SimSession::ask(std::uint32_t by, std::uint32_t other) {
  if (!awaited_.contains(by)) return;
  const SimStore& store = fabric_.sim();
  if (store.is_gone(by)) return let_go(by);
  const bool is_asked = !store.is_gone(other);
  if (!store.answers(by) || (is_asked && !store.answers(other)))
    return after(again_after_ns, [by, other](SimSession& self) { self.ask(by, other); });
  if (is_asked) end_at(other);
  after(last_change_ns(), [by, other](SimSession& self) { self.hear(by, other); });
}

void SimSession::hear(std::uint32_t by, std::uint32_t other) {
  const auto awaited = awaited_.find(by);
  if (awaited == awaited_.end()) return;
  awaited->second &= ~node_bit(other);
  if (awaited->second == 0) let_go(by);
}

// What is left of one that wrote, others settle; one that read has left nothing. A host that has lost its
// memory meanwhile holds nothing of it any more.
void SimSession::let_go(std::uint32_t node) {
  std::erase_if(clients_, [this, node](std::uint32_t client) {
    if (node_of_client(client) != node) return false;
    if (fabric_.holds_presence(client)) {
      if (fabric_.read_only()) fabric_.readers()->dismiss(fabric_, client);
      fabric_.release_presence(client);
    }
    return true;
  });
  awaited_.erase(node);
  --fabric_.sim().condemned_;
}

}  // namespace loch::fabric::sim
