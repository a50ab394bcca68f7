#include "bench/raw_reads.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "fabric/fabric.h"
#include "memory/layout.h"

namespace loch::bench {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr base::Nanos timeout_ns = 10 * base::second_ns;
// Posted as one batch; while the answers to one are looked at, others are on their way.
constexpr std::size_t batch_reads_max = 16;

// A batch that is posted again as soon as it has completed.
struct Batch : fabric::Completion {
  Batch() : Completion{&completed} {}
  static void completed(Completion& completion, Result<void> result) {
    auto& self = static_cast<Batch&>(completion);
    self.is_posted = false;
    self.outcome = std::move(result);
  }
  [[nodiscard]] bool has_bad_address() const {
    return std::ranges::any_of(operations, &fabric::Operation::bad_address);
  }

  std::vector<fabric::Operation> operations;
  std::vector<std::uint64_t> words;
  bool is_posted = false;
  std::uint64_t posted_ns = 0;
  Result<void> outcome{};
};

std::vector<std::unique_ptr<Batch>> make_batches(std::size_t reads) {
  std::vector<std::unique_ptr<Batch>> batches;
  while (reads != 0) {
    const std::size_t count = std::min(reads, batch_reads_max);
    auto batch = std::make_unique<Batch>();
    batch->words.resize(count);
    for (std::uint64_t& word : batch->words) {
      batch->operations.push_back(
          {.at = {}, .local = reinterpret_cast<std::byte*>(&word), .length_bytes = word_bytes});
    }
    batches.push_back(std::move(batch));
    reads -= count;
  }
  return batches;
}

}  // namespace

Result<RawReads> RawReads::attach(const std::string& url, const std::string& key_file) {
  auto memory = fabric::attach(url, {.key_file = key_file});
  if (!memory) return std::unexpected(std::move(memory.error()));
  auto port = (*memory)->connect();
  const auto bytes = port->length_bytes(memory::index_region);
  if (!bytes) return std::unexpected(bytes.error());
  return RawReads(std::move(*memory), std::move(port), *bytes / word_bytes);
}

RawReads::RawReads(std::shared_ptr<fabric::Fabric> memory, std::unique_ptr<fabric::Port> port,
                   std::uint64_t words)
    : memory_(std::move(memory)), port_(std::move(port)), words_(words) {}
RawReads::RawReads(RawReads&& other) noexcept = default;
RawReads::~RawReads() = default;

Result<Lap> RawReads::run(double seconds, std::size_t outstanding, Histogram& latencies) {
  base::Random random(outstanding);
  const auto batches = make_batches(outstanding);
  const auto wanted_ns = static_cast<std::uint64_t>(seconds * 1e9);
  const auto post = [&](Batch& batch) {
    for (fabric::Operation& operation : batch.operations)
      operation.at = {memory::index_region, random.below(words_) * word_bytes};
    batch.is_posted = true;
    batch.posted_ns = now_ns();
    port_->post(batch.operations, base::Clock().now() + timeout_ns, batch);
  };
  Lap lap;
  const std::uint64_t start_ns = now_ns();
  for (const auto& batch : batches) post(*batch);
  Result<void> failed;
  std::size_t posted = batches.size();
  while (posted != 0) {
    port_->poll(base::millisecond_ns);
    const std::uint64_t now = now_ns();
    for (const auto& batch : batches) {
      if (batch->is_posted) continue;
      if (!batch->outcome) failed = batch->outcome;
      if (batch->has_bad_address()) failed = fail(Errc::corrupt, "bench", "a word of the index is not there");
      if (outstanding == 1) latencies.record(now - batch->posted_ns);
      lap.operations += batch->operations.size();
      --posted;
      if (!failed || now - start_ns >= wanted_ns) continue;
      post(*batch);
      ++posted;
    }
    lap.elapsed_ns = now - start_ns;
  }
  if (!failed) return std::unexpected(std::move(failed.error()));
  return lap;
}

}  // namespace loch::bench
