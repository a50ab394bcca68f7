// For tests: certificates, made anew and removed at the end.
//
//   authority.pem          vouches for host, client and expired
//   stranger.pem           another authority
//   host.pem, .key         of 127.0.0.1 and localhost
//   encrypted.key          host's key, with a pass phrase
//   client.pem, .key
//   expired.pem, .key      as host's, but of yesterday
#pragma once

#include <string>

namespace loch::net::fake {

class Certificates {
 public:
  explicit Certificates(std::string folder);
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace loch::net::fake
