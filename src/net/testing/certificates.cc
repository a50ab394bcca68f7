#include "net/testing/certificates.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <utility>

#include "base/check.h"

namespace loch::net::fake {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

struct Identity {
  Key key;
  Certificate certificate;
};

constexpr long day_s = 86'400;

void add_extension(X509* certificate, int what, const char* value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value);
  LOCH_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Key make_key() { return {EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), &EVP_PKEY_free}; }
// Of another type than all others.
Key make_rsa_key() {
  constexpr std::size_t bits = 2'048;
  return {EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", bits), &EVP_PKEY_free};
}

// Signed by `by`, or by itself: an authority.
Identity make(const char* name, const Identity* by, long from_s, long until_s) {
  Identity made{make_key(), Certificate(X509_new(), &X509_free)};
  X509* certificate = made.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  static long serial = 0;
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until_s);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1,
                             -1, 0);
  X509_set_issuer_name(certificate, by == nullptr ? subject : X509_get_subject_name(by->certificate.get()));
  add_extension(certificate, NID_basic_constraints, by == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  if (by != nullptr) add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  LOCH_CHECK(X509_sign(certificate, (by == nullptr ? made : *by).key.get(), EVP_sha256()) > 0);
  return made;
}

std::unique_ptr<std::FILE, int (*)(std::FILE*)> open(const std::string& path) {
  return {std::fopen(path.c_str(), "w"), &std::fclose};
}

// Encrypted, if there is a pass phrase.
void write_key(const Key& key, const std::string& path, const char* pass_phrase = nullptr) {
  const EVP_CIPHER* cipher = pass_phrase == nullptr ? nullptr : EVP_aes_256_cbc();
  const auto before = ::umask(077);
  LOCH_CHECK(PEM_write_PrivateKey(open(path).get(), key.get(), cipher, nullptr, 0, nullptr,
                                  const_cast<char*>(pass_phrase)) == 1);
  ::umask(before);
}

void write(const Identity& identity, const std::string& path_without_end) {
  LOCH_CHECK(PEM_write_X509(open(path_without_end + ".pem").get(), identity.certificate.get()) == 1);
  write_key(identity.key, path_without_end + ".key");
}

}  // namespace

Certificates::Certificates(std::string folder) : folder_(std::move(folder)) {
  std::filesystem::create_directory(folder_);
  const Identity authority = make("authority", nullptr, -day_s, day_s);
  write(authority, file("authority"));
  write(make("stranger", nullptr, -day_s, day_s), file("stranger"));
  const Identity host = make("host", &authority, -day_s, day_s);
  write(host, file("host"));
  write_key(host.key, file("encrypted.key"), "secret");
  write_key(make_rsa_key(), file("rsa.key"));
  write(make("client", &authority, -day_s, day_s), file("client"));
  write(make("host", &authority, -2 * day_s, -day_s), file("expired"));
}

}  // namespace loch::net::fake
