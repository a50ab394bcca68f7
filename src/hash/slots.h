// Slots: one session's way to the slots of one shard: its directory, single slots, the words of a key's slots
// (docs/hash.md, "Words"), and the time of the shard's home, which times to live go by.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "base/clock.h"
#include "fabric/endpoint.h"
#include "hash/index.h"
#include "hash/rules.h"
#include "memory/attachment.h"

namespace loch::hash {

class Slots final {
 public:
  // `attachment` is attached to the shard's home. `timeout_ns`: of an operation.
  Slots(memory::Attachment& attachment, std::uint32_t shard, base::Nanos timeout_ns);
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots() = default;

  // What is better known before the first operation; the directory among it.
  coro::Task<Result<void>> open();
  // Before an operation goes on: a remote session refreshes when it is due.
  coro::Task<Result<void>> keep_fresh();

  [[nodiscard]] memory::Attachment& attachment() const { return attachment_; }
  [[nodiscard]] std::uint32_t home_number() const { return home_number_; }
  // The session with the shard's home.
  [[nodiscard]] memory::Session& home() const { return home_; }
  [[nodiscard]] fabric::Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] const IndexPlace& place() const { return place_; }
  [[nodiscard]] unsigned candidates() const { return candidates_; }
  [[nodiscard]] base::Nanos timeout_ns() const { return timeout_ns_; }

  // ---- the time that times to live go by
  // What is known of it, and what it is between the call and the answer.
  [[nodiscard]] base::Nanos newest_time() const { return home_.control().newest_time() + time_ahead_ns_; }
  coro::Task<Result<base::Nanos>> read_time();
  // What it is ahead of the home's clock (IndexRoot).
  [[nodiscard]] base::Nanos time_ahead_ns() const { return time_ahead_ns_; }

  // ---- the directory
  // As this session last saw it.
  [[nodiscard]] Directory directory() const;
  // The same, or a newer one that came with a refresh: the one by which slots are looked for.
  Directory directory_to_go_by() {
    learn_directory();
    return directory();
  }
  // Where that is.
  [[nodiscard]] std::byte* directory_word() const { return directory_word_; }
  // Errors: moved, corrupt, and those of the fabric.
  coro::Task<Result<Directory>> read_directory();
  // Whether the slots that this client looks at are those that the directory tells of; and why they are not.
  [[nodiscard]] bool is_open() const { return directory().is_open(place_.slots); }
  [[nodiscard]] std::unexpected<Error> not_open(std::uint64_t key_hash = 0) const;

  // ---- one slot
  coro::Task<Result<std::uint64_t>> read(SlotNumber slot);
  // False if the word is not `expected`, which this operation has read, or written.
  coro::Task<Result<bool>> swap(SlotNumber slot, SlotWord expected, SlotWord desired,
                                SlotWord* before = nullptr);
  // Of one that is mapped: asks for the memory of the header of the item that is committed there.
  void fetch_header(SlotNumber slot) const;

  // ---- the words of a key's slots
  // They are read once, where the directory says they are. False if a remote session learns of a newer
  // directory at that: then what was read says nothing of what is not there. Errors: timed_out, of
  // `operation`, too.
  //
  // A remote session that only looks for the key need not read the directory, too: a committed word whose
  // item has the key is right wherever it stands. If there is none, the next collect reads it, and tells of
  // both. Of a cluster it is read all the same: slots of a shard that is elsewhere say nothing (Handover).
  enum class DirectoryToo : std::uint8_t { no, yes };
  coro::Task<Result<bool>> collect_once(std::uint64_t key_hash, Collect* into, const char* operation,
                                        DirectoryToo directory_too = DirectoryToo::yes);
  // The two halves of it, around the reading of these words into `into->word`; for a remote session, whose
  // words need no memory::Attachment::Look. `only`: the one slot of the key's that is wanted.
  struct Reading {
    std::array<fabric::Address, locations_max + 1> at;
    unsigned count = 0;
    bool has_directory = false;  // as the last of them

    void add(fabric::Address address) { at[count++] = address; }
    void ask(SlotWord* into, std::vector<fabric::Operation>* operations) const {
      for (const fabric::Address address : addresses())
        operations->push_back(fabric::Operation::read(address, &(into++)->raw, sizeof(SlotWord)));
    }
    [[nodiscard]] std::span<const fabric::Address> addresses() const { return std::span(at).first(count); }
  };
  Reading begin_collect(std::uint64_t key_hash, Collect* into, DirectoryToo directory_too,
                        std::optional<SlotNumber> only = std::nullopt);
  Result<bool> end_collect(const Reading& reading, const Collect& seen);
  // They are read by a directory that they agree with. Errors: corrupt, if one of them is damaged; moved;
  // those of the fabric.
  coro::Task<Result<void>> collect(std::uint64_t key_hash, Collect* into);
  // How often who collects a key's words looks again because they disagree with the directory.
  static constexpr unsigned outdated_retries_max = 64;
  // What a damaged one comes to.
  coro::Task<std::unexpected<Error>> damaged_slot(std::uint64_t key_hash);

 private:
  coro::Task<Result<bool>> find_out_why_absent(Collect* seen, Error error);
  std::byte* directory_place();
  void learn_directory();

  memory::Attachment& attachment_;
  const std::uint32_t home_number_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const base::Nanos timeout_ns_;
  const unsigned candidates_;
  const IndexPlace place_;
  std::uint64_t directory_copy_ = 0;  // of a remote client; a directory that there was
  std::byte* const directory_word_;
  base::Nanos time_ahead_ns_ = 0;
};

}  // namespace loch::hash
