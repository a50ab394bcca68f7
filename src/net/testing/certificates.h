// For tests: certificates, made anew in a folder.
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
  // Makes the folder, too, if it is not there.
  explicit Certificates(std::string folder);

  [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace loch::net::fake
