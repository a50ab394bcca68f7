#include "net/message.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>

namespace loch::net {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint32_t);

constexpr std::size_t error_bytes_max = 1'024;

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }

// All that is not printable by its escape; quotes as they are.
std::string printable(std::string_view text) {
  const std::string quoted = fmt::format("{:?}", text);
  const std::string_view inside = std::string_view(quoted).substr(1, quoted.size() - 2);
  std::string plain;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (plain.size() >= error_bytes_max && begins_character(inside[i])) return plain + "...";
    if (inside[i] == '\\' && (inside[i + 1] == '"' || inside[i + 1] == '\\')) ++i;
    plain += inside[i];
  }
  return plain;
}

std::unexpected<Error> timed_out(const char* step) {
  return fail(Errc::timed_out, step, "the other end did not answer in time");
}

}  // namespace

Result<Message> parse_message(std::string_view text) {
  using Event = Message::parse_event_t;
  bool is_too_deep = false;
  const auto look = [&is_too_deep](int depth, Event event, const Message& /*parsed*/) {
    const bool begins = event == Event::object_start || event == Event::array_start;
    const bool is_kept = !begins || depth < Messages::depth_max;
    is_too_deep = is_too_deep || !is_kept;
    return is_kept;
  };
  Message message = Message::parse(text, look, false);
  if (is_too_deep) {
    return fail(Errc::corrupt, "message",
                fmt::format("what was sent is nested more than {} deep", Messages::depth_max));
  }
  if (!message.is_object()) return fail(Errc::corrupt, "message", "what was sent is no JSON object");
  return message;
}

Result<std::optional<Message>> Messages::next() {
  for (;;) {
    std::uint32_t length = 0;
    if (in_.size() >= length_bytes) {
      std::memcpy(&length, in_.data(), length_bytes);
      if (length > bytes_max)
        return fail(Errc::corrupt, "message",
                    fmt::format("a message of {} bytes; the other end speaks something else", length));
      if (in_.size() == length_bytes + length) {
        auto message = parse_message(std::string_view(in_).substr(length_bytes));
        in_.clear();
        return message;
      }
    }
    // No more than what is missing: what follows may be no message.
    const std::size_t there = in_.size();
    const std::size_t missing = length_bytes + length - there;
    in_.resize(there + missing);
    const iovec part{.iov_base = in_.data() + there, .iov_len = missing};
    auto got = stream_->read({&part, 1});
    in_.resize(there + got.value_or(0));
    if (!got) return std::unexpected(std::move(got.error()));
    if (*got == 0) return std::nullopt;
  }
}

Result<void> Messages::say(const Message& message) {
  const std::string text = message.dump(-1, ' ', false, Message::error_handler_t::replace);
  const auto length = static_cast<std::uint32_t>(text.size());
  std::array<char, length_bytes> head{};
  std::memcpy(head.data(), &length, length_bytes);
  out_.append(head.data(), head.size());
  out_ += text;
  if (auto sent = flush(); !sent) return std::unexpected(std::move(sent.error()));
  return {};
}

Result<bool> Messages::flush() {
  while (has_unsent()) {
    const iovec part{.iov_base = out_.data() + sent_, .iov_len = out_.size() - sent_};
    auto sent = stream_->write({&part, 1});
    if (!sent) return std::unexpected(std::move(sent.error()));
    if (*sent == 0) return false;
    sent_ += *sent;
  }
  out_.clear();
  sent_ = 0;
  return true;
}

Result<void> Messages::establish(base::Nanos deadline) {
  for (;;) {
    auto done = stream_->establish();
    if (!done) return std::unexpected(std::move(done.error()));
    if (*done) return {};
    if (!wait_for(stream_->socket(), stream_->awaited(), deadline)) return timed_out("TLS");
  }
}

Result<void> Messages::wait_flush(base::Nanos deadline) {
  for (;;) {
    auto done = flush();
    if (!done) return std::unexpected(std::move(done.error()));
    if (*done) return {};
    if (!wait_for(stream_->socket(), POLLOUT, deadline)) return timed_out("message");
  }
}

Result<Message> Messages::wait_next(base::Nanos deadline) {
  for (;;) {
    auto message = next();
    if (!message) return std::unexpected(std::move(message.error()));
    if (*message) return std::move(**message);
    if (!wait_for(stream_->socket(), POLLIN, deadline)) return timed_out("message");
  }
}

Result<Message> Messages::ask(const Message& message, base::Nanos deadline) {
  if (auto said = say(message); !said) return std::unexpected(std::move(said.error()));
  if (auto flushed = wait_flush(deadline); !flushed) return std::unexpected(std::move(flushed.error()));
  return wait_next(deadline);
}

std::string text_of(const Message& message, const char* field) {
  const auto found = message.find(field);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<std::uint64_t> number_of(const Message& message, const char* field) {
  const auto found = message.find(field);
  if (found == message.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

bool flag_of(const Message& message, const char* field) {
  const auto found = message.find(field);
  return found != message.end() && found->is_boolean() && found->get<bool>();
}

Message error_message(const Error& error) {
  return {{"error", {{"code", static_cast<unsigned>(error.code)}, {"detail", error.detail}}}};
}

std::optional<Error> error_of(const Message& message, const char* operation) {
  const auto found = message.find("error");
  if (found == message.end()) return std::nullopt;
  if (!found->is_object())
    return Error{.code = Errc::corrupt, .operation = operation, .detail = "an error that says nothing"};
  const std::uint64_t code = number_of(*found, "code").value_or(0);
  const bool is_known =
      code >= static_cast<std::uint64_t>(Errc::not_found) && code <= static_cast<std::uint64_t>(Errc::io);
  std::string detail = printable(text_of(*found, "detail"));
  if (detail.empty()) detail = "the other side does not say why";
  return Error{.code = is_known ? static_cast<Errc>(code) : Errc::io,
               .operation = operation,
               .detail = std::move(detail)};
}

}  // namespace loch::net
