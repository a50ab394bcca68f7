// Messages over a Stream: four bytes of length, least first, and a JSON object of that many bytes. For
// what is said rarely: who is there, what he may do, how long a region is to be.
//
// A message is input: one that is too long or too deep, no JSON, or no object is an error, and the connection
// is of no more use. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

#include "net/socket.h"
#include "net/stream.h"

namespace loch::net {

using Message = nlohmann::json;

class Messages {
 public:
  // The longest is a host's answer with the map of its cluster (fabric/map_message.h).
  static constexpr std::size_t bytes_max = 32'768;
  // Objects and lists in each other. To copy a message takes a stack as deep as it is; that map is 5 deep.
  static constexpr int depth_max = 16;

  explicit Messages(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  [[nodiscard]] Stream& stream() { return *stream_; }

  // The next one, if it is there. Errors: those of the stream, corrupt.
  Result<std::optional<Message>> next();
  // Says something, as far as that goes now.
  Result<void> say(const Message& message);
  // Goes on with what is not sent yet; whether all of it is.
  Result<bool> flush();
  [[nodiscard]] bool has_unsent() const { return sent_ < out_.size(); }

  // The same, waiting. Errors: also timed_out.
  Result<void> establish(base::Nanos deadline);
  Result<Message> wait_next(base::Nanos deadline);
  Result<Message> ask(const Message& message, base::Nanos deadline);

  // The stream, for what is no message. Nothing was read of it beyond the last one.
  std::unique_ptr<Stream> take_stream() && { return std::move(stream_); }

 private:
  Result<void> wait_flush(base::Nanos deadline);

  std::unique_ptr<Stream> stream_;
  std::string in_;  // what is there of the next message, and nothing beyond
  std::string out_;
  std::size_t sent_ = 0;
};

// Text as a message. Errors: corrupt, if it is too deep (Messages::depth_max), no JSON, or no object.
Result<Message> parse_message(std::string_view text);

// Fields of a message; of another type, or missing: the default.
std::string text_of(const Message& message, const char* field);
std::optional<std::uint64_t> number_of(const Message& message, const char* field);
bool flag_of(const Message& message, const char* field);

// An error as a message, and back.
Message error_message(const Error& error);
// What `message` says went wrong; nothing if it says nothing. `operation` is of the one who asked. It is for
// terminals and logs: what they would act on is spelt out (\x1b), and of a long text the beginning is there.
std::optional<Error> error_of(const Message& message, const char* operation);

}  // namespace loch::net
