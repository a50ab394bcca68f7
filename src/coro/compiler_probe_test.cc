// Does this compiler keep the rules that our coroutines rely on (HACKING.md, "Coroutines")?
//
// Stands alone, so that a compiler can be tried before anything else is built with it:
//   clang++-19 -std=c++23 -O2 src/coro/compiler_probe_test.cc -o probe && ./probe
// Its Task is formed like <loch/coro/task.h>: awaiting resumes the child in place, and the end of a task that
// had suspended resumes who awaits it. Each situation runs with children that finish at once and with ones
// that suspend. Frames start as garbage, and a freed frame is watched for late writes.

#include <algorithm>
#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

int failures = 0;

#define PROBE(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ++failures;                                                                    \
      std::fprintf(stderr, "  %s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                                \
  } while (false)

// ---- Frames: garbage before use, and kept after it to see whether anybody still writes there.

constexpr unsigned char fresh_byte = 0xa5;
constexpr unsigned char freed_byte = 0xdd;
constexpr std::size_t watched_frames_max = 4096;

struct WatchedFrame {
  unsigned char* at;
  std::size_t bytes;
};
std::vector<WatchedFrame> watched_frames;

void* new_frame(std::size_t bytes) {
  void* frame = std::malloc(bytes);
  if (frame == nullptr) std::abort();
  std::memset(frame, fresh_byte, bytes);
  return frame;
}

void delete_frame(void* frame, std::size_t bytes) {
  if (watched_frames.size() == watched_frames_max) {
    std::free(frame);
    return;
  }
  std::memset(frame, freed_byte, bytes);
  watched_frames.push_back({static_cast<unsigned char*>(frame), bytes});
}

void no_freed_frame_was_written() {
  for (const WatchedFrame& frame : watched_frames) {
    PROBE(
        std::all_of(frame.at, frame.at + frame.bytes, [](unsigned char byte) { return byte == freed_byte; }));
    std::free(frame.at);
  }
  watched_frames.clear();
}

// ---- Objects: each is made once and destroyed once, at the same place.

std::set<const void*> alive;
int made = 0;

struct Tracked {
  explicit Tracked(int v = 0) : value(v) { arrive(); }
  Tracked(const Tracked& other) : value(other.value) { arrive(); }
  Tracked(Tracked&& other) noexcept : value(std::exchange(other.value, -1)) { arrive(); }
  Tracked& operator=(const Tracked&) = default;
  Tracked& operator=(Tracked&& other) noexcept {
    value = std::exchange(other.value, -1);
    return *this;
  }
  ~Tracked() { PROBE(alive.erase(this) == 1); }

  int value;

 private:
  void arrive() {
    ++made;
    PROBE(alive.insert(this).second);
  }
};

// ---- Task, and a queue of those that have suspended.

std::vector<std::coroutine_handle<>> ready;

void run_all() {
  while (!ready.empty()) {
    const std::coroutine_handle<> next = ready.back();
    ready.pop_back();
    next.resume();
  }
}

struct Suspend {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) const { ready.push_back(handle); }
  void await_resume() const noexcept {}
};

template <class T>
struct Promise;

template <class T>
struct [[nodiscard]] Task {
  using promise_type = Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle h) : handle(h) {}
  Task(Task&& other) noexcept : handle(std::exchange(other.handle, {})) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle) handle.destroy();
  }

  struct Awaiter {
    Handle child;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> parent) noexcept {
      child.resume();
      if (child.done()) return false;
      child.promise().continuation = parent;
      return true;
    }
    T await_resume() { return std::move(*child.promise().value); }
  };
  Awaiter operator co_await() && noexcept { return {handle}; }

  Handle handle;
};

template <class T>
struct Promise {
  std::coroutine_handle<> continuation;
  std::optional<T> value;

  static void* operator new(std::size_t bytes) { return new_frame(bytes); }
  static void operator delete(void* frame, std::size_t bytes) { delete_frame(frame, bytes); }

  struct FinalAwaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      // What is resumed here destroys this frame while this call still runs.
      if (const std::coroutine_handle<> next = self.promise().continuation) next.resume();
    }
    void await_resume() const noexcept {}
  };

  Task<T> get_return_object() { return Task<T>(Task<T>::Handle::from_promise(*this)); }
  std::suspend_always initial_suspend() noexcept { return {}; }
  FinalAwaiter final_suspend() noexcept { return {}; }
  [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
};

template <class T>
T run(Task<T> task) {
  task.handle.resume();
  run_all();
  PROBE(task.handle.done());
  if (!task.handle.done()) std::abort();
  return std::move(*task.handle.promise().value);
}

enum class Pace : std::uint8_t { at_once, suspending };

Task<int> give(Pace pace, int value) {
  if (pace == Pace::suspending) co_await Suspend{};
  co_return value;
}

Task<bool> below(Pace pace, int value, int limit) {
  if (pace == Pace::suspending) co_await Suspend{};
  co_return value < limit;
}

Task<std::optional<std::string>> find(Pace pace, bool there) {
  if (pace == Pace::suspending) co_await Suspend{};
  if (!there) co_return std::nullopt;
  co_return std::string(40, 'x');
}

// ---- co_await in conditions.

Task<int> conditions(Pace pace) {
  int score = 0;
  if (co_await below(pace, 1, 2)) score += 1;
  if (co_await below(pace, 2, 1)) score += 1000;
  if (const int found = co_await give(pace, 7); found == 7) score += 10;
  if (co_await below(pace, 2, 1) || co_await below(pace, 1, 2)) score += 100;
  if (co_await below(pace, 2, 1) && co_await below(pace, 1, 2)) score += 1000;
  if (!co_await below(pace, 2, 1)) score += 10000;
  co_return score;
}

Task<int> loops(Pace pace) {
  int rounds = 0;
  int i = 0;
  while (co_await below(pace, i, 5)) {
    ++i;
    ++rounds;
  }
  for (int j = co_await give(pace, 2); co_await below(pace, j, 6); j += co_await give(pace, 2)) rounds += 10;
  do {
    rounds += 100;
  } while (co_await below(pace, rounds, 325));
  while (const int left = co_await give(pace, i)) {
    i = left - 1;
    rounds += 1000;
  }
  co_return rounds;
}

Task<int> switches(Pace pace, int which) {
  switch (co_await give(pace, which)) {
    case 1:
      co_return co_await give(pace, 11);
    case 2:
      which = co_await give(pace, 20);
      [[fallthrough]];
    case 3:
      co_return which + co_await give(pace, 30);
    default:
      break;
  }
  switch (const int again = co_await give(pace, which); again) {
    case 4:
      co_return again * 100;
    default:
      co_return co_await below(pace, again, 6) ? co_await give(pace, 1) : co_await give(pace, 2);
  }
}

// The shape of most of our code: one awaited step after the other, each with a way out.
Task<int> ways_out(Pace pace, int way) {
  if (!(co_await find(pace, way != 1))) co_return 1;
  if ((co_await find(pace, way != 2)).value_or("").size() != 40) co_return 2;
  if (const auto found = co_await find(pace, way != 3); !found || found->size() != 40) co_return 3;
  while (const auto found = co_await find(pace, way == 4)) co_return 4;
  co_return 5;
}

// The same with nothing else in the body, which a compiler may take apart differently.
Task<int> one_if(Pace pace, bool there) {
  if ((co_await find(pace, there)).has_value()) co_return 1;
  co_return 2;
}

Task<int> one_switch(Pace pace, bool there) {
  switch ((co_await find(pace, there)).value_or("").size()) {
    case 40:
      co_return 1;
    default:
      co_return 2;
  }
}

void probe_conditions(Pace pace) {
  for (int way = 1; way <= 5; ++way) PROBE(run(ways_out(pace, way)) == way);
  PROBE(run(one_if(pace, true)) == 1 && run(one_if(pace, false)) == 2);
  PROBE(run(one_switch(pace, true)) == 1 && run(one_switch(pace, false)) == 2);
  PROBE(run(conditions(pace)) == 10111);
  PROBE(run(loops(pace)) == 5 + 2 * 10 + 4 * 100 - 100 + 5 * 1000);
  PROBE(run(switches(pace, 1)) == 11);
  PROBE(run(switches(pace, 2)) == 50);
  PROBE(run(switches(pace, 3)) == 33);
  PROBE(run(switches(pace, 4)) == 400);
  PROBE(run(switches(pace, 5)) == 1);
  PROBE(run(switches(pace, 6)) == 2);
}

// ---- Temporaries of an awaiting expression: alive until its end, destroyed once.

struct Request {
  Tracked from;
  std::string name;
  std::unique_ptr<int> into;
  int length_bytes = 0;
};

Task<int> serve(Pace pace, Request request) {
  if (pace == Pace::suspending) co_await Suspend{};
  PROBE(request.name.size() == 40);
  co_return request.from.value + *request.into + request.length_bytes;
}

// An awaiter that is itself such an aggregate, as the operations of the fabric are.
struct Operation {
  Request request;
  Pace pace = Pace::at_once;
  [[nodiscard]] bool await_ready() const { return pace == Pace::at_once; }
  void await_suspend(std::coroutine_handle<> handle) const { ready.push_back(handle); }
  [[nodiscard]] int await_resume() const { return request.from.value + *request.into + request.length_bytes; }
};

Operation post(Pace pace, Request request) { return {.request = std::move(request), .pace = pace}; }

std::string long_name() { return std::string(40, 'x'); }

Task<int> aggregates(Pace pace) {
  int sum = co_await serve(
      pace, {.from = Tracked(1), .name = long_name(), .into = std::make_unique<int>(2), .length_bytes = 3});
  sum += co_await serve(pace,
                        Request{.from = Tracked(10), .name = long_name(), .into = std::make_unique<int>(20)});
  sum += co_await post(pace, {.from = Tracked(100), .name = long_name(), .into = std::make_unique<int>(200)});
  sum += co_await Operation{
      .request = {.from = Tracked(1000), .name = long_name(), .into = std::make_unique<int>(2000)},
      .pace = pace};
  if (co_await serve(pace, {.from = Tracked(1), .name = long_name(), .into = std::make_unique<int>(0)}) == 1)
    sum += 10000;
  co_return sum;
}

Task<int> size_of(Pace pace, const Tracked* there) {
  if (pace == Pace::suspending) co_await Suspend{};
  PROBE(alive.contains(there));
  co_return there->value;
}

// A branch that is not taken makes no temporaries and destroys none.
Task<int> branches(Pace pace, bool left) {
  const int chosen = left ? co_await give(pace, Tracked(3).value) : co_await give(pace, Tracked(4).value);
  const bool both = left && co_await below(pace, Tracked(1).value, 2);
  const bool either = left || co_await below(pace, Tracked(2).value, 1);
  const int held = co_await size_of(pace, &static_cast<const Tracked&>(Tracked(50)));
  co_return chosen + held + (both ? 100 : 0) + (either ? 1000 : 0);
}

Task<std::vector<Tracked>> several(Pace pace) {
  if (pace == Pace::suspending) co_await Suspend{};
  std::vector<Tracked> items;
  for (int i = 1; i <= 3; ++i) items.emplace_back(i);
  co_return items;
}

Task<std::pair<Tracked, int>> two(Pace pace) {
  if (pace == Pace::suspending) co_await Suspend{};
  co_return std::pair<Tracked, int>(Tracked(5), 6);
}

Task<int> bindings(Pace pace) {
  int sum = 0;
  for (const Tracked& item : co_await several(pace)) sum += co_await give(pace, item.value);
  const auto [tracked, number] = co_await two(pace);
  co_return sum * 100 + tracked.value * 10 + co_await give(pace, number);
}

Task<int> takes_by_value(Pace pace, Tracked a, std::unique_ptr<Tracked> b) {
  const Tracked before(a.value);
  if (pace == Pace::suspending) co_await Suspend{};
  const std::array<Tracked, 2> locals{Tracked(1), Tracked(2)};
  if (before.value == 7) co_return a.value + b->value + locals[1].value;
  co_return 0;
}

void probe_temporaries(Pace pace) {
  made = 0;
  PROBE(run(aggregates(pace)) == 6 + 30 + 300 + 3000 + 10000);
  PROBE(made > 0 && alive.empty());
  PROBE(run(branches(pace, true)) == 3 + 50 + 100 + 1000);
  PROBE(run(branches(pace, false)) == 4 + 50);
  PROBE(alive.empty());
  PROBE(run(bindings(pace)) == 656);
  PROBE(alive.empty());
  PROBE(run(takes_by_value(pace, Tracked(7), std::make_unique<Tracked>(8))) == 17);
  PROBE(alive.empty());
}

// ---- A suspended task that is destroyed destroys its locals, its arguments and the tasks that it awaits.

Task<int> never_ends(Tracked argument) {
  const Tracked local(1);
  co_await Suspend{};
  co_return argument.value + local.value;
}

Task<int> awaits_it() {
  const Tracked outer(2);
  co_return outer.value + co_await never_ends(Tracked(3));
}

void probe_destruction() {
  {
    const Task<int> unstarted = never_ends(Tracked(1));
  }
  PROBE(alive.empty());
  {
    const Task<int> suspended = awaits_it();
    suspended.handle.resume();
    PROBE(!suspended.handle.done());
    PROBE(alive.size() >=
          3);  // whether the caller's copy of the argument is gone by now is the compiler's to say
    ready.clear();
  }
  PROBE(alive.empty());
}

// ---- The stack: a loop of awaits, however long, takes no more of it than one.

constexpr int rounds_many = 100'000;
constexpr std::size_t stack_growth_bytes_max = std::size_t{64} << 10;

std::uintptr_t stack_lowest = UINTPTR_MAX;
std::uintptr_t stack_highest = 0;

__attribute__((noinline)) void note_stack() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  stack_lowest = std::min(stack_lowest, here);
  stack_highest = std::max(stack_highest, here);
}

template <class Body>
void probe_stack(Body body) {
  stack_lowest = UINTPTR_MAX;
  stack_highest = 0;
  body();
  PROBE(stack_highest != 0);
  PROBE(stack_highest - stack_lowest < stack_growth_bytes_max);
}

Task<int> note(Pace pace, int value) {
  note_stack();
  if (pace == Pace::suspending) co_await Suspend{};
  note_stack();
  co_return value;
}

Task<std::int64_t> many(Pace pace, bool alternating) {
  std::int64_t sum = 0;
  for (int i = 0; i < rounds_many; ++i) {
    sum += co_await note(alternating && i % 2 == 0 ? Pace::at_once : pace, i);
  }
  co_return sum;
}

// By handles that await_suspend returns: the jump from one coroutine to the next has to be a tail call at
// every level.
struct Chain {
  struct promise_type {
    std::coroutine_handle<> parent = std::noop_coroutine();
    static void* operator new(std::size_t bytes) { return new_frame(bytes); }
    static void operator delete(void* frame, std::size_t bytes) { delete_frame(frame, bytes); }
    struct Final {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      [[nodiscard]] std::coroutine_handle<> await_suspend(
          std::coroutine_handle<promise_type> self) const noexcept {
        return self.promise().parent;
      }
      void await_resume() const noexcept {}
    };
    Chain get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    void return_void() noexcept {}
  };

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  [[nodiscard]] std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
    handle.promise().parent = awaiting;
    return handle;
  }
  void await_resume() const noexcept {}

  std::coroutine_handle<promise_type> handle;
};

Chain link(const std::vector<Chain>* links, std::size_t depth, int* reached) {
  note_stack();
  if (depth == 0) {
    *reached += 1;
  } else {
    co_await (*links)[depth - 1];
  }
  note_stack();
}

void probe_chain() {
  int reached = 0;
  std::vector<Chain> links;
  links.reserve(rounds_many);
  for (std::size_t depth = 0; depth < rounds_many; ++depth) links.push_back(link(&links, depth, &reached));
  links.back().handle.resume();
  PROBE(reached == 1);
  PROBE(std::ranges::all_of(links, [](const Chain& each) { return each.handle.done(); }));
  for (const Chain& each : links) each.handle.destroy();
}

void probe_stacks() {
  constexpr std::int64_t sum = std::int64_t{rounds_many} * (rounds_many - 1) / 2;
  probe_stack([] { PROBE(run(many(Pace::at_once, false)) == sum); });
  probe_stack([] { PROBE(run(many(Pace::suspending, false)) == sum); });
  probe_stack([] { PROBE(run(many(Pace::suspending, true)) == sum); });
  probe_stack(probe_chain);
}

template <class Probe>
void section(const char* what, Probe probe) {
  const int before = failures;
  probe();
  no_freed_frame_was_written();
  std::printf("%-48s %s\n", what, failures == before ? "kept" : "BROKEN");
  std::fflush(stdout);  // the next one may crash
}

}  // namespace

int main() {
  section("co_await in conditions, at once", [] { probe_conditions(Pace::at_once); });
  section("co_await in conditions, suspending", [] { probe_conditions(Pace::suspending); });
  section("temporaries destroyed once, at once", [] { probe_temporaries(Pace::at_once); });
  section("temporaries destroyed once, suspending", [] { probe_temporaries(Pace::suspending); });
  section("a suspended task can be destroyed", probe_destruction);
  section("the stack does not grow", probe_stacks);
  if (failures != 0) {
    std::printf(
        "This compiler does not keep %d of the rules that Loch's coroutines rely on: do not build Loch with "
        "it.\n",
        failures);
    return 1;
  }
  return 0;
}
