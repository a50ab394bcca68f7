// Task: a lazy, move-only coroutine that is awaited once.
//
// Rules that keep coroutines safe stand in HACKING.md, "Coroutines"; the compiler probe tests what they rely
// on. I1 A Task starts when it is awaited or started, and its frame dies with the Task object. I2 A Task that
// never suspends costs one pooled frame: awaiting it resumes it in place and goes on. I3 A Task is resumed on
// one thread at a time, that of its run queue. I4 An exception that leaves a Task, a caller's own too, ends
// the process.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace loch::coro {

// Frames come from a pool of the calling thread, by size; see frame_pool.cc.
void* allocate_frame(std::size_t bytes);
void free_frame(void* frame, std::size_t bytes) noexcept;

// Told when a task that was started, and not awaited, has finished.
class Joiner {
 public:
  virtual void child_done() noexcept = 0;

 protected:
  ~Joiner() = default;
};

template <class T>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> continuation;  // who awaits, once the task has suspended
  Joiner* joiner = nullptr;              // who started it, instead

  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* frame, std::size_t bytes) noexcept { free_frame(frame, bytes); }

  struct FinalAwaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      // The frame may be gone when the continuation returns: nothing of it is touched afterwards.
      PromiseBase& promise = self.promise();
      if (promise.continuation) {
        promise.continuation.resume();
      } else if (promise.joiner != nullptr) {
        promise.joiner->child_done();
      }
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() noexcept { return {}; }
  FinalAwaiter final_suspend() noexcept { return {}; }
  [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() noexcept {}
  void take() noexcept {}
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;  // of nothing: it can be assigned to or destroyed
  explicit Task(Handle handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Runs the task until it first suspends or finishes. Whoever starts it keeps it alive until it is done, and
  // is told so through `joiner` if that happens later than in this call.
  void start(Joiner* joiner = nullptr) {
    handle_.resume();
    if (!handle_.done()) handle_.promise().joiner = joiner;
  }
  [[nodiscard]] bool done() const { return handle_.done(); }
  // What the task returned; once, after it is done.
  [[nodiscard]] T take() { return handle_.promise().take(); }

  // co_await: starts the task; goes on at once if it finishes without suspending.
  struct Awaiter {
    Handle child;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> parent) noexcept {
      child.resume();
      if (child.done()) return false;
      child.promise().continuation = parent;
      return true;
    }
    T await_resume() { return child.promise().take(); }
  };
  Awaiter operator co_await() && noexcept { return Awaiter{handle_}; }

 private:
  Handle handle_;
};

template <class T>
Task<T> detail::Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> detail::Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

}  // namespace loch::coro
