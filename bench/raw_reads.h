// bench/raw_reads: what a network between a store and its client does beneath keys and values: reads of 8
// bytes of the store's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <loch/error.h>

#include "bench/histogram.h"
#include "bench/lap.h"

namespace loch::fabric {
class Fabric;
class Port;
}  // namespace loch::fabric

namespace loch::bench {

// One thread.
class RawReads {
 public:
  // `key_file` as in loch::Options. Errors: as those of opening the store.
  static Result<RawReads> attach(const std::string& url, const std::string& key_file);

  RawReads(RawReads&& other) noexcept;
  RawReads& operator=(RawReads&&) = delete;
  RawReads(const RawReads&) = delete;
  RawReads& operator=(const RawReads&) = delete;
  ~RawReads();

  // Reads words of the store's index, `outstanding` (at least 1) at a time. One at a time, each is recorded
  // in `latencies`. Errors: those of an operation; corrupt when one is outside its region.
  Result<Lap> run(double seconds, std::size_t outstanding, Histogram& latencies);

 private:
  RawReads(std::shared_ptr<fabric::Fabric> memory, std::unique_ptr<fabric::Port> port, std::uint64_t words);

  std::shared_ptr<fabric::Fabric> memory_;
  std::unique_ptr<fabric::Port> port_;
  std::uint64_t words_;
};

}  // namespace loch::bench
