// ForkWatch: tells its owner of every fork of this process.
//
// A child gets copies of what its parent has of a store: descriptors that hold the parent's locks with it,
// and memory that is the store's itself. The owner takes care that nothing that the child does with them, its
// destructors among it, comes to the parent. Any thread; only a fork by the C library is known of.
#pragma once

namespace loch::fabric::shm {

class ForkWatch {
 public:
  class Owner {
   public:
    // In the thread that forks. Between the two no other thread of this process may be at work on what
    // after_fork comes to.
    virtual void before_fork() = 0;
    virtual void after_fork(bool in_child) = 0;

   protected:
    ~Owner() = default;
  };

  // From now on, so it is the last of the owner's members.
  explicit ForkWatch(Owner* owner);
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

 private:
  Owner* const owner_;
};

}  // namespace loch::fabric::shm
