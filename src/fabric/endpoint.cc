#include "fabric/endpoint.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace loch::fabric {

Endpoint::Endpoint(std::shared_ptr<Fabric> fabric, std::unique_ptr<Port> port)
    : fabric_(std::move(fabric)), port_(std::move(port)), queue_(fabric_->clock()) {}
Endpoint::~Endpoint() = default;

std::unique_ptr<Posted, GiveBack> Endpoint::take_posted(std::coroutine_handle<> waiter) {
  if (spare_posted_.empty()) return std::unique_ptr<Posted, GiveBack>(new Posted(*this, waiter));
  std::unique_ptr<Posted, GiveBack> taken(spare_posted_.back().release());
  spare_posted_.pop_back();
  taken->waiter = waiter;
  return taken;
}

void GiveBack::operator()(Posted* posted) const noexcept {
  constexpr std::size_t spares_max = 256;
  std::unique_ptr<Posted> given(posted);
  auto& spares = posted->endpoint.spare_posted_;
  if (spares.size() == spares_max) return;
  given->batch.clear();
  given->outcome = {};
  given->urgency = Urgency::awaited;
  spares.push_back(std::move(given));
}

std::byte* Endpoint::remap(Address at, std::size_t length_bytes) {
  const auto mapping = port_->map(at.region);
  if (!mapping) return nullptr;
  is_elsewhere_[at.region] = mapping->base == nullptr;
  mappings_[at.region] = is_elsewhere_[at.region] ? Mapping{} : *mapping;
  return mapped_before(at, length_bytes);
}

Result<std::uint64_t> Endpoint::length_bytes(RegionId region) {
  auto length = port_->length_bytes(region);
  if (!length && length.error().code == Errc::not_found) return 0;
  return length;
}

std::uint64_t Endpoint::known_length_bytes(RegionId region) {
  const auto known = port_->map(region);
  return known ? known->length_bytes : 0;
}

bool Endpoint::reaches(Address at, std::size_t length_bytes) {
  if (mapped(at, length_bytes) != nullptr) return true;
  const std::uint64_t end = at.offset_bytes + length_bytes;
  return known_length_bytes(at.region) >= end || this->length_bytes(at.region).value_or(0) >= end;
}

// A batch on its way that no coroutine is suspended for.
struct Endpoint::Waited : Completion {
  Endpoint& endpoint;
  Result<void> outcome{};
  bool is_over = false;

  explicit Waited(Endpoint& e) : Completion{&completed}, endpoint(e) {}
  static void completed(Completion& completion, Result<void> result) {
    auto& self = static_cast<Waited&>(completion);
    if (!result) self.endpoint.has_failed_ = true;
    self.outcome = std::move(result);
    self.is_over = true;
  }
};

Result<void> Endpoint::perform_each_waiting(std::span<Operation> operations) {
  const auto is_mapped = [this](const Operation& one) {
    return !is_elsewhere_[one.at.region] && mapped(one.at, one.length_bytes) != nullptr;
  };
  if (std::ranges::all_of(operations, is_mapped)) {
    for (Operation& one : operations) carry_out(one, mapped(one.at, one.length_bytes));
    return {};
  }
  Waited batch(*this);
  port_->post(operations, now() + timeout_ns_, batch);
  while (!batch.is_over) step();
  return std::move(batch.outcome);
}

void Endpoint::step() {
  if (queue_.run_one()) return;
  const base::Nanos next = queue_.run_timers();
  if (!queue_.idle()) return;
  const base::Nanos time = next == 0 ? 0 : now();  // read for a timer alone
  port_->poll(next > time ? next - time : base::millisecond_ns);
}

void Posted::completed(Completion& completion, Result<void> result) {
  auto& self = static_cast<Posted&>(completion);
  if (!result) self.endpoint.has_failed_ = true;
  self.outcome = std::move(result);
  self.endpoint.queue_.push(self.waiter);
}

void carry_out(Operation& operation, std::byte* at) {
  switch (operation.kind) {
    case Operation::Kind::read:
      return copy_from_region(operation.local, at, operation.length_bytes);
    case Operation::Kind::write:
      return copy_to_region(at, operation.local, operation.length_bytes);
    case Operation::Kind::compare_swap:
      operation.result = swap_word(at, operation.compare, operation.operand);
      return;
    case Operation::Kind::fetch_add:
      operation.result = add_to_word(at, operation.operand);
      return;
    case Operation::Kind::expect:
      operation.bad_address = !holds(at, operation.local, operation.length_bytes);
      return;
  }
}

Result<void> Posted::finish(std::span<const Operation> operations) {
  if (!outcome) return std::move(outcome);
  for (const Operation& operation : operations) {
    if (operation.unreachable) {
      const std::string why = endpoint.port().why_unreachable(operation.at.region);
      return fail(
          Errc::unavailable, "fabric",
          fmt::format("{}: the host that region {} is on can not be reached now{}{}",
                      endpoint.fabric().location(), operation.at.region, why.empty() ? "" : ": ", why));
    }
    if (!operation.bad_address) continue;
    if (operation.kind == Operation::Kind::expect) {
      return fail(Errc::corrupt, "fabric",
                  fmt::format("at offset {:#x} of region {} there is something else than what was expected",
                              operation.at.offset_bytes, operation.at.region));
    }
    return fail(Errc::corrupt, "fabric",
                fmt::format("region {} has no {} bytes at offset {:#x}", operation.at.region,
                            operation.length_bytes, operation.at.offset_bytes));
  }
  return {};
}

}  // namespace loch::fabric
