// A host that everybody may open a store at. It greets a client, and answers what it will ask over its link;
// and lies as a script says. Without one it is honest.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <tuple>
#include <utility>

#include "base/file_descriptor.h"
#include "base/testing/in_seconds.h"
#include "fabric/cluster_map.h"
#include "fabric/map_message.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/testing/acceptor.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/messages.h"

namespace loch::fuzz {

class LyingHost {
 public:
  // What the last client was told, and what would have proved that it was told by the host.
  struct Told {
    net::Message opened{};
    std::string nonce_of_client{};
    std::string nonce_of_host{};
    [[nodiscard]] bool proves_the_host() const {
      const auto access = fabric::remote::access_text(net::flag_of(opened, "read_only"));
      return net::text_of(opened, "proof") ==
             net::proof(net::no_key(), {"host", nonce_of_host, nonce_of_client, "store", access});
    }
  };

  [[nodiscard]] fabric::remote::Target target() const {
    return {.scheme = "tcp", .host = acceptor_.at(), .store = "store"};
  }
  // To the next clients.
  void lie(std::string script) {
    const std::scoped_lock lock(mutex_);
    script_ = std::move(script);
  }
  // Waits until it has told all that there is.
  [[nodiscard]] Told told() {
    const std::scoped_lock lock(mutex_);
    return told_;
  }

 private:
  void serve(base::FileDescriptor socket) {
    const std::scoped_lock lock(mutex_);
    Input input(reinterpret_cast<const std::uint8_t*>(script_.data()), script_.size());
    const auto deadline = base::fake::in_seconds(5);
    told_ = {};
    messages_ = std::make_unique<net::Messages>(std::make_unique<net::Stream>(std::move(socket)));
    const auto hello = messages_->wait_next(deadline);
    if (!hello) return;
    told_.nonce_of_client = net::text_of(*hello, "nonce");
    net::Message greeting{{"protocol", fabric::remote::protocol_version},
                          {"nonce", std::string(2 * fabric::remote::nonce_bytes, 'h')}};
    const bool is_greeted = tell(greeting, input);
    told_.nonce_of_host = net::text_of(greeting, "nonce");
    const auto said = is_greeted ? messages_->wait_next(deadline) : fail(Errc::unavailable, "fuzz");
    if (said) {
      told_.opened = answer_to(*said);
      tell(told_.opened, input);
      // What it will ask, in this order.
      for (net::Message answer : {net::Message{{"claimed", true}}, net::Message{{"present", true}},
                                  net::Message{{"bytes", 1U << 20}}, net::Message::object()})
        tell(answer, input);
    }
    ::shutdown(messages_->stream().socket(), SHUT_WR);
  }

  [[nodiscard]] net::Message answer_to(const net::Message& said) const {
    const bool reads_only = net::flag_of(said, "read_only");
    const auto access = fabric::remote::access_text(reads_only);
    const auto map = fabric::ClusterMap::spread({{.name = "a", .at = {.host = "h", .port = "1"}}}, 1);
    return {{"proof", net::proof(net::no_key(),
                                 {"host", told_.nonce_of_host, told_.nonce_of_client, "store", access})},
            {"link", "1"},
            {"read_only", reads_only},
            {"device_atomics", false},
            {"cluster", fabric::cluster::to_message(map.value())},
            {"node", 0U}};
  }

  // With what the input changes of it. False if it tells any bytes instead: the client may wait for more of
  // them.
  bool tell(net::Message& message, Input& input) {
    change(message, input);
    const bool is_message = (input.take(1) & 15) != 15;
    const std::string bytes = is_message ? framed(text_of(message)) : input.take_bytes(input.take(1));
    const iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    // What a client does not take is of no use to it any more.
    std::ignore = messages_->stream().write({&part, 1});
    return is_message;
  }

  std::mutex mutex_;
  std::string script_{};
  Told told_{};
  std::unique_ptr<net::Messages> messages_{};  // to the last client
  const net::fake::Acceptor acceptor_{[this](base::FileDescriptor socket) { serve(std::move(socket)); }};
};

}  // namespace loch::fuzz
