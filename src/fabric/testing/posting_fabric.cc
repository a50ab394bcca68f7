#include "fabric/testing/posting_fabric.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "fabric/endpoint.h"

namespace loch::fabric::fake {
namespace {

class PostingPort final : public MemoryPort {
 public:
  PostingPort(MemoryFabric& fabric, const PostingOptions& options, std::uint64_t seed)
      : MemoryPort(fabric), fabric_(fabric), options_(options), random_(seed) {}

  Result<Mapping> map(RegionId region) override {
    auto mapping = fabric_.map(region);
    if (mapping && !(options_.mapped && options_.mapped(region))) mapping->base = nullptr;
    return mapping;
  }

  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) override {
    posted_.push_back({batch, deadline, &done});
  }

  void extend_soon(RegionId region, std::uint64_t length_bytes) override {
    [[maybe_unused]] const auto extended = fabric_.extend(region, length_bytes);
  }

  [[nodiscard]] bool keeps_order() const override { return options_.keeps_order; }
  [[nodiscard]] OperationCost operation_cost() const override { return options_.operation_cost; }

  [[nodiscard]] bool present(std::uint32_t client) override {
    if (options_.presence_asked != nullptr) ++*options_.presence_asked;
    return MemoryPort::present(client);
  }

  void poll(base::Nanos wait_ns) override {
    if (posted_.empty()) {
      fabric_.store().advance(wait_ns);
      return;
    }
    if (options_.round_trips == nullptr) return carry_out_one();
    ++*options_.round_trips;
    for (std::size_t left = posted_.size(); left > 0; --left) {
      std::swap(posted_[random_.below(left)], posted_[left - 1]);
      std::swap(posted_[left - 1], posted_.back());  // what is posted meanwhile is of the next one
      carry_out_last();
    }
  }

 private:
  struct Posted {
    std::span<Operation> batch;
    base::Nanos deadline = 0;
    Completion* done = nullptr;
  };

  void carry_out_one() {
    std::swap(posted_[random_.below(posted_.size())], posted_.back());
    carry_out_last();
  }

  void carry_out_last() {
    const Posted taken = posted_.back();
    posted_.pop_back();
    const bool held = options_.held && options_.held(taken.batch);
    if (taken.deadline != 0 && fabric_.store().now() > taken.deadline) {
      return taken.done->complete(*taken.done,
                                  fail(Errc::timed_out, "fabric", "the batch's deadline passed"));
    }
    if (held) {
      posted_.push_back(taken);
      fabric_.store().advance(base::millisecond_ns);
      return;
    }
    std::vector<std::size_t> order(taken.batch.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1 && !options_.keeps_order; --i)
      std::swap(order[i - 1], order[random_.below(i)]);
    for (const std::size_t i : order) {
      if (taken.batch[i].after_previous) continue;
      execute(taken.batch[i]);
      for (std::size_t next = i + 1; next < taken.batch.size() && taken.batch[next].after_previous; ++next)
        execute_after(taken.batch[next - 1], taken.batch[next]);
    }
    taken.done->complete(*taken.done, {});
  }

  void execute_after(const Operation& previous, Operation& operation) {
    operation.bad_address = previous.bad_address;
    if (!operation.bad_address) execute(operation);
  }

  void execute(Operation& operation) {
    if (options_.before) options_.before(operation);
    LOCH_CHECK(operation.kind != Operation::Kind::expect || options_.keeps_order);
    std::byte* at = place_of(operation);
    operation.bad_address = at == nullptr;
    if (at != nullptr) carry_out(operation, at);
  }

  MemoryFabric& fabric_;
  const PostingOptions& options_;
  base::Random random_;
  std::vector<Posted> posted_;
};

}  // namespace

std::unique_ptr<Port> PostingFabric::connect() {
  return std::make_unique<PostingPort>(*this, options_, options_.seed + ports_.fetch_add(1));
}

}  // namespace loch::fabric::fake
