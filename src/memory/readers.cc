#include "memory/readers.h"

#include <atomic>
#include <limits>

#include "base/planted.h"

namespace loch::memory {
namespace {

constexpr std::uint64_t process_of_readers = 0;  // no process of a session that writes

void store(std::uint64_t& word, std::uint64_t value) { shared(word).store(value, std::memory_order_release); }

}  // namespace

void make_room_for_readers(Control& control) { control.raise_clients_end(device_readers_end); }

std::optional<fabric::OwnWords> admit_reader(Control& control, std::uint32_t client, Atomics atomics) {
  if (client == 0 || client >= client_count_max) return std::nullopt;
  if (atomics == Atomics::device && client >= control.clients_end()) return std::nullopt;
  ClientEntry& entry = control.entry(client);
  const bool is_left = shared(entry.open).load(std::memory_order_acquire) != 0;
  if (is_left && shared(entry.process).load(std::memory_order_acquire) != process_of_readers)
    return std::nullopt;
  const base::Nanos time = shared(control.word(latest_offset)).load(std::memory_order_acquire);
  store(entry.op_start_ns, time);
  store(entry.pin_start_ns, time);
  store(entry.opened_at_ns, time);
  store(entry.process, process_of_readers);
  store(entry.act_until_ns, std::numeric_limits<std::uint64_t>::max());
  store(entry.takes_part, 0);
  if (atomics == Atomics::processor) control.raise_clients_end(client + 1);
  if (!base::planted(base::Planted::reader_unseen)) store(entry.open, 1);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as in Session::begin
  const ClientCounters& counters = control.counters(client);
  return fabric::OwnWords{
      .first = {.at = control.address_of(&entry.op_start_ns),
                .length_bytes = sizeof entry.op_start_ns + sizeof entry.pin_start_ns},
      .second = {.at = control.address_of(counters.counted.data()), .length_bytes = sizeof counters.counted}};
}

void dismiss_reader(Control& control, std::uint32_t client) {
  ClientEntry& entry = control.entry(client);
  for (std::uint64_t* word : {&entry.op_start_ns, &entry.pin_start_ns, &entry.open}) store(*word, 0);
}

}  // namespace loch::memory
