// For tests: a process that gets no other thread while the object lives, as if it had all that it may have.
// Root has no such limit; so threads are to have stacks that are larger than any address space.
#pragma once

#include <cstddef>
#include <pthread.h>
#include <system_error>

namespace loch::base::fake {

class NoThreads {
 public:
  NoThreads() {
    constexpr std::size_t stack_bytes = std::size_t{1} << 50;
    must(::pthread_getattr_default_np(&usual_));
    pthread_attr_t huge{};
    must(::pthread_attr_init(&huge));
    must(::pthread_attr_setstacksize(&huge, stack_bytes));
    must(::pthread_setattr_default_np(&huge));
    ::pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&usual_);
    ::pthread_attr_destroy(&usual_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void must(int error) {
    if (error != 0) throw std::system_error(error, std::generic_category());
  }

  pthread_attr_t usual_{};
};

}  // namespace loch::base::fake
