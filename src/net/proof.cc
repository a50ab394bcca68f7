#include "net/proof.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace loch::net {
namespace {

std::string hex(const std::byte* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
  return text;
}

Secret hmac(const void* key, std::size_t key_bytes, std::string_view text) {
  Secret result;
  unsigned length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key, static_cast<int>(key_bytes),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(result.data()), &length);
  LOCH_CHECK(done != nullptr && length == result.size());
  return result;
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> random(bytes);
  LOCH_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(bytes)) == 1);
  return hex(random.data(), bytes);
}

Secret digest(const Secret& secret, std::initializer_list<std::string_view> texts) {
  std::string all;
  for (const std::string_view text : texts) all += fmt::format("{}:{}", text.size(), text);
  return hmac(secret.data(), secret.size(), all);
}

std::string proof(const Secret& secret, std::initializer_list<std::string_view> texts) {
  const Secret result = digest(secret, texts);
  return hex(result.data(), result.size());
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<void> check_private(const std::string& path, unsigned mode) {
  if ((mode & (S_IROTH | S_IWOTH | S_IWGRP)) == 0) return {};
  return fail(Errc::permission, "key",
              fmt::format("{} may be read or changed by others (mode {:o}); chmod it to 600 or 640", path,
                          mode & 0777U));
}

Result<Secret> read_key_file(const std::string& path) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat stat{};
  if (!file.is_open() || ::fstat(file.get(), &stat) != 0) {
    const Errc code = errno == ENOENT ? Errc::not_found : errno == EACCES ? Errc::permission : Errc::io;
    return fail(code, "key", fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (S_ISDIR(stat.st_mode))
    return fail(Errc::invalid_argument, "key", fmt::format("{} is a folder; a key is in a file", path));
  if (auto sound = check_private(path, stat.st_mode); !sound)
    return std::unexpected(std::move(sound.error()));
  constexpr std::size_t bytes_max = 4'096;
  std::string text(bytes_max, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return fail(Errc::io, "key", fmt::format("{}: {}", path, std::strerror(errno)));
  text.resize(static_cast<std::size_t>(got));
  while (!text.empty() && std::string_view(" \t\r\n").contains(text.back())) text.pop_back();
  constexpr std::size_t bytes_min = 16;
  if (text.size() < bytes_min) {
    return fail(Errc::invalid_argument, "key",
                fmt::format("{} has {} bytes, and a key has {} at least; make one: "
                            "head -c 32 /dev/urandom | base64 > {}",
                            path, text.size(), bytes_min, path));
  }
  return hmac("loch key", std::strlen("loch key"), text);
}

Secret no_key() { return Secret{}; }

}  // namespace loch::net
