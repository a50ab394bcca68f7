// Event: something that happens once; coroutines of one thread wait for it, each until a deadline.
#pragma once

#include <coroutine>
#include <list>

#include "base/clock.h"
#include "coro/run_queue.h"

namespace loch::coro {

class Event {
 public:
  explicit Event(RunQueue& queue) : queue_(queue) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Lets all who wait, and all who come, go on.
  void set() {
    set_ = true;
    for (Wait* waiter : waiters_) {
      queue_.remove(*waiter);
      waiter->happened = true;
      queue_.push(waiter->handle);
    }
    waiters_.clear();
  }
  [[nodiscard]] bool is_set() const { return set_; }

  // co_await event.wait(deadline): true if the event happened before the deadline.
  struct Wait : RunQueue::Timer {
    Event& event;
    std::coroutine_handle<> handle;
    bool happened = false;
    std::list<Wait*>::iterator place;

    Wait(Event& e, base::Nanos deadline) : Timer{.at = deadline, .due = &give_up}, event(e) {}
    bool await_ready() {
      happened = event.set_;
      return happened || event.queue_.now() >= at;
    }
    void await_suspend(std::coroutine_handle<> waiting) {
      handle = waiting;
      place = event.waiters_.insert(event.waiters_.end(), this);
      event.queue_.add(*this);
    }
    [[nodiscard]] bool await_resume() const { return happened; }
    static void give_up(Timer& timer) {
      auto& self = static_cast<Wait&>(timer);
      self.event.waiters_.erase(self.place);
      self.event.queue_.push(self.handle);
    }
  };
  Wait wait(base::Nanos deadline) { return {*this, deadline}; }

 private:
  RunQueue& queue_;
  std::list<Wait*> waiters_;
  bool set_ = false;
};

}  // namespace loch::coro
