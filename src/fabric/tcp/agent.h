// Agent: a thread that carries out what clients on other hosts ask for over `tcp`, on memory that is mapped
// here and with the processor's atomics, so that those of local clients and of all others are atomic
// together. It knows nothing of the stores above it, but for where they keep their time: before it carries
// out what has come, it raises that to the clock.
//
// It takes what has come of a connection in one call, carries all of it out in order, and answers in one
// call. It looks for more for a short while after its last work, and then sleeps. A connection that does
// not take its answers is not read from until it does, so that it costs a bounded amount of memory; while it
// takes what was kept for it, it counts as heard from.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/fabric.h"
#include "fabric/readers.h"
#include "fabric/tcp/answers.h"
#include "fabric/tcp/executor.h"
#include "fabric/tcp/focus.h"
#include "net/stream.h"

namespace loch::fabric::tcp {

class Agent {
 public:
  using Id = std::uint64_t;

  struct Options {
    // Told by the agent's thread when a connection was closed by its other end, or could not be taken on;
    // remove is not needed then.
    std::function<void(Id)> gone;
  };
  struct Counts {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t atomics = 0;
    std::uint64_t bad_addresses = 0;  // outside their region
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t sends = 0;  // calls of the kernel that sent answers
  };

  // Throws std::system_error where the kernel has no thread or descriptor left.
  explicit Agent(Options options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // What may be changed over a connection: all, or its own words, by writes alone.
  enum class May : std::uint8_t { change_all, write_own };

  // Takes on a connection to `memory`, all of whose regions are mapped here, and which keeps its time in the
  // word at `time` (null: nowhere). Any thread.
  void add(Id id, std::unique_ptr<net::Stream> stream, std::shared_ptr<Fabric> memory,
           std::byte* time = nullptr, May may = May::change_all);
  // The own words of a connection that may write these; none until it is told. When it returns, nothing is
  // written any more to what were its words before. Any thread but the agent's.
  void set_own_words(Id id, const OwnWords& words);
  // When it returns, the connection is closed, and nothing that came over it happens any more; the other end
  // is told so, if it takes its answers. Any thread but the agent's.
  void remove(Id id);
  // When something last came over the connection, or was taken of what was kept for it, by base::Clock; 0 if
  // there is none. Any thread.
  [[nodiscard]] base::Nanos last_heard(Id id);

  [[nodiscard]] Counts counts() const;

 private:
  struct Connection;
  enum class After : std::uint8_t { had_nothing, waits, goes_on, is_gone };

  void run();
  void take_commands();
  void wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t command);
  void wake() const;
  // False if the kernel can not watch one more.
  [[nodiscard]] bool watch(Connection& connection, std::uint32_t events) const;
  After serve(Connection& connection);
  After answer_all(Connection& connection, std::size_t have);
  // Whether what was read and written is the store's, and may be answered.
  static bool is_intact(const Connection& connection);
  bool send(Connection& connection);
  bool send_kept(Connection& connection);
  void take_leave(Connection& connection);
  void drop(Id id);
  void lose(Id id);

  const Options options_;
  base::FileDescriptor epoll_;
  base::FileDescriptor woken_;

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::shared_ptr<Connection>> added_;
  std::vector<Id> removed_;
  std::vector<std::pair<Id, OwnWords>> own_words_;
  std::uint64_t commands_given_ = 0;
  std::uint64_t commands_done_ = 0;
  std::map<Id, std::shared_ptr<Connection>> known_;
  bool stop_ = false;

  // Of the thread alone.
  std::map<Id, std::shared_ptr<Connection>> connections_;
  std::map<Fabric*, std::weak_ptr<Endpoint>> memories_;
  std::vector<Id> unfinished_;  // with more to do
  Focus focus_;
  std::unique_ptr<std::uint64_t[]> in_;
  Answers answers_;

  Executor::Counts executed_{};
  struct {
    std::atomic<std::uint64_t> bytes_in, bytes_out, sends;
  } counts_{};
  std::thread thread_;
};

}  // namespace loch::fabric::tcp
