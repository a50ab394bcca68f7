#include "fabric/remote/link.h"

#include <chrono>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "fabric/remote/protocol.h"
#include "net/cookie.h"

namespace loch::fabric::remote {

std::string Target::text() const { return fmt::format("{}://{}/{}", scheme, host.text(), store); }

namespace {

// A step, and what may be wrong there where the error does not say so itself.
const char* step_of_tls(const Error& error) {
  return error.code == Errc::permission ? "TLS" : "TLS (does the host have a certificate?)";
}
// A host looks at a client's certificate when the client is past TLS.
const char* step_of_greeting(const Error& error) {
  return error.code == Errc::permission
             ? "TLS (--tls-certificate and --tls-key say what is shown to the host)"
             : "greeting (is that lochd, does it want TLS or want it not, and has it room: connections_max?)";
}

base::Nanos left_ns(base::Nanos deadline) {
  const base::Nanos now = base::Clock().now();
  return deadline > now ? deadline - now : 0;
}

}  // namespace

Link::Link(Target target) : target_(std::move(target)), at_(target_.host) {}

// The same, with the host and the step.
Error Link::explained(Error error, const char* step) const {
  error.operation = "open";
  error.detail = fmt::format("{}: {}: {}", target_.text(), step, error.detail);
  return error;
}

Result<Link::Greeting> Link::greet(base::Nanos deadline) const {
  auto socket = net::connect(at_, target_.source, deadline);
  if (!socket) {
    socket.error().operation = "open";
    return std::unexpected(std::move(socket.error()));
  }
  const auto host = net::peer_address(socket->get());
  Greeting greeting;
  if (target_.credentials != nullptr) greeting.shown = target_.credentials->now();
  if (host) greeting.at = host->text();
  const auto& tls = greeting.shown.tls;
  greeting.messages =
      std::make_unique<net::Messages>(tls ? tls->connect(std::move(*socket), target_.host.host)
                                          : std::make_unique<net::Stream>(std::move(*socket)));
  if (auto done = greeting.messages->establish(deadline); !done)
    return std::unexpected(explained(done.error(), step_of_tls(done.error())));
  greeting.mine = net::random_hex(nonce_bytes);
  auto answer = greeting.messages->ask({{"protocol", protocol_version}, {"nonce", greeting.mine}}, deadline);
  if (!answer) return std::unexpected(explained(answer.error(), step_of_greeting(answer.error())));
  if (auto error = net::error_of(*answer, "open")) return std::unexpected(explained(*error, "greeting"));
  const auto version = net::number_of(*answer, "protocol");
  greeting.theirs = net::text_of(*answer, "nonce");
  if (version != protocol_version || greeting.theirs.size() != 2 * nonce_bytes) {
    return fail(Errc::incompatible, "open",
                fmt::format("{}: it speaks protocol {}, this program {}", target_.text(), version.value_or(0),
                            protocol_version));
  }
  if (host && host->is_loopback()) {
    const auto user = net::number_of(*answer, "cookie");
    if (user && *user <= std::numeric_limits<uid_t>::max()) greeting.cookie_of = static_cast<uid_t>(*user);
  }
  return greeting;
}

Result<net::Secret> Link::key_for(const Greeting& greeting) const {
  const std::string directory = target_.credentials != nullptr ? target_.credentials->cookie_directory() : "";
  if (!greeting.cookie_of || directory.empty()) return greeting.shown.key;
  auto cookie = net::read_cookie(directory, *greeting.cookie_of);
  if (cookie) return net::cookie_key(*cookie, greeting.at);
  const char* elsewhere =
      cookie.error().code == Errc::not_found ? " (is that the directory of its stores?)" : "";
  return fail(
      Errc::permission, "open",
      fmt::format("{}: lochd has no key_file there, and lets in its own user ({}) and root alone, by a "
                  "cookie that this process can not use: {}{}; others need a key_file (there, and here by "
                  "--key-file), or its open_to_all",
                  target_.text(), *greeting.cookie_of, cookie.error().detail, elsewhere));
}

Result<std::shared_ptr<Link>> Link::open(const Target& target, base::Nanos within_ns) {
  std::shared_ptr<Link> link(new Link(target));
  const base::Nanos deadline = base::Clock().now() + within_ns;
  auto greeting = link->greet(deadline);
  if (!greeting) return std::unexpected(std::move(greeting.error()));
  const std::string_view mine = greeting->mine;
  const std::string_view theirs = greeting->theirs;
  const auto key = link->key_for(*greeting);
  if (!key) return std::unexpected(key.error());
  const std::string proof =
      net::proof(*key, {"open", theirs, mine, target.store, access_text(target.read_only)});
  auto answer = greeting->messages->ask(
      {{"open", target.store}, {"read_only", target.read_only}, {"proof", proof}}, deadline);
  if (!answer) return std::unexpected(link->explained(std::move(answer.error()), "opening"));
  if (auto error = net::error_of(*answer, "open")) return std::unexpected(link->explained(*error, "opening"));
  link->read_only_ = net::flag_of(*answer, "read_only");
  if (!net::same(net::text_of(*answer, "proof"),
                 net::proof(*key, {"host", theirs, mine, target.store, access_text(link->read_only_)}))) {
    return fail(Errc::permission, "open",
                fmt::format("{}: whoever answers there does not know the key", target.text()));
  }
  if (target.read_only && !link->read_only_) {
    return fail(Errc::incompatible, "open",
                fmt::format("{}: the host does not know clients that only read", target.text()));
  }
  if (net::flag_of(*answer, "device_atomics")) link->atomics_ = Atomics::device;
  if (answer->contains("cluster")) link->cluster_ = answer->at("cluster");
  link->node_ = net::number_of(*answer, "node").value_or(0);
  link->id_ = net::text_of(*answer, "link");
  link->secret_ = net::digest(*key, {"link", theirs, mine});
  // Nobody else is to be shown what a session says, or to answer it: of what is joined to a link no host
  // proves anything.
  link->at_ = net::parse_host_port(greeting->at, default_port).value_or(target.host);
  link->messages_ = std::move(greeting->messages);
  return link;
}

Result<Link::Joined> Link::join(const std::string& session) {
  const base::Nanos deadline = base::Clock().now() + within_ns_of(session);
  auto greeting = greet(deadline);
  if (!greeting) return std::unexpected(std::move(greeting.error()));
  const std::string proof = net::proof(secret_, {"join", greeting->theirs, greeting->mine, session});
  auto answer = greeting->messages->ask({{"join", id_}, {"session", session}, {"proof", proof}}, deadline);
  if (!answer) return std::unexpected(explained(std::move(answer.error()), "joining"));
  if (auto error = net::error_of(*answer, "open")) {
    if (error->code == Errc::not_found) {
      error->code = Errc::unavailable;  // the store is there
      const std::scoped_lock lock(mutex_);
      messages_ = nullptr;
    }
    return std::unexpected(explained(*error, "joining"));
  }
  return Joined{.stream = std::move(*greeting->messages).take_stream(),
                .port = net::number_of(*answer, "port").value_or(0)};
}

Result<net::Message> Link::ask(const net::Message& message) {
  const std::scoped_lock lock(mutex_);
  return ask_now(message, answer_max_ns);
}

Result<net::Message> Link::ask(const net::Message& message, base::Nanos deadline,
                               const net::Message* if_late) {
  const auto lock = await_turn(deadline);
  if (lock.owns_lock()) return ask_now(message, left_ns(deadline), if_late);
  return fail(Errc::timed_out, "fabric",
              fmt::format("{}: the host has not answered others in time", target_.text()));
}

bool Link::say(const net::Message& message, base::Nanos deadline) {
  const auto lock = await_turn(deadline);
  return lock.owns_lock() && say_now(message);
}

bool Link::say_now(const net::Message& message) {
  if (messages_ == nullptr) return false;
  if (owed_++ == 0) silent_since_ns_ = base::Clock().now();
  if (!messages_->say(message)) messages_ = nullptr;
  return messages_ != nullptr;
}

std::unique_lock<std::timed_mutex> Link::await_turn(base::Nanos deadline) {
  return std::unique_lock(mutex_, std::chrono::nanoseconds(left_ns(deadline)));
}

Result<net::Message> Link::ask_now(const net::Message& message, base::Nanos within_ns,
                                   const net::Message* if_late) {
  if (messages_ == nullptr) {
    return fail(Errc::unavailable, "fabric",
                fmt::format("{}: the connection was lost; it is made anew by the next call", target_.text()));
  }
  const base::Nanos now = base::Clock().now();
  const base::Nanos deadline = now + within_ns;
  if (owed_++ == 0) silent_since_ns_ = now;
  auto answer = messages_->ask(message, deadline);
  while (answer && --owed_ != 0) {
    silent_since_ns_ = base::Clock().now();
    answer = messages_->wait_next(deadline);
  }
  if (!answer) {
    const bool may_come = answer.error().code == Errc::timed_out && within_ns < answer_max_ns &&
                          base::Clock().now() - silent_since_ns_ < answer_max_ns;
    if (!may_come) messages_ = nullptr;
    if (if_late != nullptr) say_now(*if_late);
    answer.error().detail = fmt::format("{}: {}", target_.text(), answer.error().detail);
    return answer;
  }
  if (auto error = net::error_of(*answer, "fabric")) return std::unexpected(std::move(*error));
  return answer;
}

void Link::tell(const net::Message& message) {
  // Another thread may wait for an answer.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && messages_ != nullptr && !messages_->say(message)) messages_ = nullptr;
}

Result<void> fence(const Target& target, const std::string& session, base::Nanos deadline) {
  const Link link(target);
  auto greeting = link.greet(deadline);
  if (!greeting) return std::unexpected(std::move(greeting.error()));
  const std::string_view mine = greeting->mine;
  const std::string_view theirs = greeting->theirs;
  const net::Secret& key = greeting->shown.key;
  const std::string proof = net::proof(key, {"fence", theirs, mine, session, target.store, target.node});
  auto answer = greeting->messages->ask(
      {{"fence", session}, {"store", target.store}, {"node", target.node}, {"proof", proof}}, deadline);
  if (!answer) return std::unexpected(link.explained(std::move(answer.error()), "fencing"));
  if (auto error = net::error_of(*answer, "open")) return std::unexpected(link.explained(*error, "fencing"));
  if (!net::same(net::text_of(*answer, "proof"),
                 net::proof(key, {"fenced", theirs, mine, session, target.store, target.node}))) {
    return fail(Errc::permission, "open",
                fmt::format("{}: whoever answers there does not know the key", target.text()));
  }
  return {};
}

bool Link::is_alive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return true;
  if (messages_ == nullptr) return false;
  // Nothing is said unasked, so what there is to read is what comes too late, or the end.
  for (;;) {
    const auto said = messages_->next();
    if (said && !*said) return true;
    if (!said || owed_ == 0) break;
    --owed_;
    silent_since_ns_ = base::Clock().now();
  }
  messages_ = nullptr;
  return false;
}

}  // namespace loch::fabric::remote
