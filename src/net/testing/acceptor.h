// For tests: takes connections on a free port of a loopback address, and gives each to a function, one after
// the other.
#pragma once

#include <functional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "net/socket.h"

namespace loch::net::fake {

class Acceptor {
 public:
  using Take = std::function<void(base::FileDescriptor)>;
  // `take` is called in a thread of this, until this goes.
  explicit Acceptor(Take take, std::string host = "127.0.0.1")
      : take_(std::move(take)),
        host_(std::move(host)),
        listener_(listen({.host = host_, .port = "0"}).value()),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor() = default;

  [[nodiscard]] HostPort at() const { return {.host = host_, .port = std::to_string(listener_.port)}; }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (wait_for(listener_.socket.get(), POLLIN, base::Clock().now() + 20 * base::millisecond_ns))
        take_(accept(listener_));
    }
  }

  const Take take_;
  const std::string host_;
  const Listener listener_;
  std::jthread thread_;
};

}  // namespace loch::net::fake
