// The awaitable form of the calls, for programs that are coroutines themselves.
//
//   loch::coro::Task<> swap(loch::Async& store) {
//     auto a = co_await store.get("a");
//     ...
//   }
//   auto async = loch::Async::open(store);
//   async->run(swap(*async));
//
// An Async belongs to one thread, is a session of its own, and keeps the store open. Keys, values and spans
// outlive the task that they are passed to, and not just the expression that makes it. Any number of calls
// may be under way; those that wait go on in `run` and `step`:
//
//   auto a = async->get("a"), b = async->get("b");
//   a.start();
//   b.start();
//   while (!a.done() || !b.done()) async->step();
//   use(a.take(), b.take());
//
// A task that was begun is kept until it is done: no call is given up, each ends with its timeout. In the
// child of a fork, tasks that were begun before are left alone: `step` there ends the process. The Async
// outlives the tasks of its calls, and is not moved while there are any; one that was moved from is only
// assigned to, or destroyed. Of a store on another host, one whose calls fail with Errc::unavailable or
// Errc::moved is over: open another.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <loch/coro/task.h>
#include <loch/loch.h>

namespace loch {

class Async {
 public:
  // Errors: no_space (too many sessions), io, unavailable.
  [[nodiscard]] static Result<Async> open(Store& store);

  Async(Async&&) noexcept;
  Async& operator=(Async&&) noexcept;
  Async(const Async&) = delete;
  Async& operator=(const Async&) = delete;
  ~Async();

  // As the calls of Store by these names.
  coro::Task<Result<std::string>> get(std::string_view key);
  coro::Task<Result<Item>> read(std::string_view key);
  coro::Task<Result<bool>> exists(std::string_view key);
  coro::Task<Result<Version>> put(std::string_view key, std::string_view value, PutOptions options = {});
  coro::Task<Result<Version>> insert(std::string_view key, std::string_view value, PutOptions options = {});
  coro::Task<Result<Version>> replace(std::string_view key, std::string_view value, Version expected,
                                      PutOptions options = {});
  coro::Task<Result<Version>> update(std::string_view key, Change change, PutOptions options = {});
  coro::Task<Result<Version>> touch(std::string_view key, PutOptions options);
  coro::Task<Result<void>> remove(std::string_view key);
  coro::Task<Result<void>> remove(std::string_view key, Version expected);
  coro::Task<void> multi_get(std::span<Lookup> lookups);
  coro::Task<void> multi_put(std::span<Assignment> assignments);
  coro::Task<void> multi_remove(std::span<Removal> removals);

  // Runs `task`, which nobody has started, to its end, and what else is ready meanwhile.
  template <class T>
  [[nodiscard]] T run(coro::Task<T> task) {
    task.start();
    while (!task.done()) step();
    return task.take();
  }
  // One step of progress for the calls that wait. If there is none to make, it waits for some: 1 ms at most,
  // but where a call rests, as a put on a full store, until that is to go on.
  void step();

 private:
  struct State;
  explicit Async(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace loch
