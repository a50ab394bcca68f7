#include "bench/libfabric_end.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <utility>

namespace loch::bench {
namespace {

constexpr const char* library_file = "libfabric.so.1";
constexpr const char* provider = "tcp;ofi_rxm";
constexpr std::uint64_t region_key = 1;
constexpr std::uint32_t version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// Takes what a function of libfabric's has opened.
template <class Object, class Call>
int open_into(Object& object, Call call) {
  typename Object::pointer opened = nullptr;
  const int code = call(&opened);
  if (code == 0) object.reset(opened);
  return code;
}

}  // namespace

Result<LibfabricCalls> LibfabricCalls::load() {
  // Else two of the libraries for devices would take the signals that end a process.
  ::setenv("IPATH_NO_BACKTRACE", "1", 0);
  ::setenv("HFI_NO_BACKTRACE", "1", 0);
  void* const library = ::dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
  LibfabricCalls calls;
  const bool is_whole =
      library != nullptr && find(library, "fi_getinfo", calls.get_info) &&
      find(library, "fi_dupinfo", calls.copy_info) && find(library, "fi_freeinfo", calls.free_info) &&
      find(library, "fi_fabric", calls.open_fabric) && find(library, "fi_strerror", calls.text_of);
  if (!is_whole)
    return fail(Errc::not_found, "bench",
                fmt::format("{}; install it with: apt-get install libfabric1", ::dlerror()));
  return calls;
}

Result<LibfabricEnd> LibfabricEnd::open(Side side, const std::string& host, std::size_t outstanding) {
  const auto calls = LibfabricCalls::load();
  if (!calls) return std::unexpected(calls.error());
  LibfabricEnd end(*calls);
  if (auto found = end.find_provider(side, host); !found) return std::unexpected(std::move(found.error()));
  if (auto opened = end.open_objects(outstanding); !opened) return std::unexpected(std::move(opened.error()));
  return end;
}

Result<void> LibfabricEnd::find_provider(Side side, const std::string& host) {
  Info wanted = no_info();
  wanted.reset(calls_.copy_info(nullptr));
  if (!wanted) return failure("fi_allocinfo", -FI_ENOMEM);
  wanted->caps = FI_RMA;
  wanted->ep_attr->type = FI_EP_RDM;
  wanted->fabric_attr->prov_name = ::strdup(provider);  // freed with the rest
  // No mode of memory: a word is named by its offset in a region, and the region by a key of our choice.
  wanted->domain_attr->mr_mode = 0;
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  fi_info* found = nullptr;
  const std::uint64_t host_is = side == Side::target ? FI_SOURCE : 0;
  const int code = calls_.get_info(version, host.c_str(), nullptr, host_is, wanted.get(), &found);
  if (code != 0) return failure(fmt::format("fi_getinfo {} at {}", provider, host).c_str(), code);
  info_.reset(found);
  return {};
}

Result<void> LibfabricEnd::open_objects(std::size_t outstanding) {
  const auto fabric = [&](fid_fabric** into) {
    return calls_.open_fabric(info_->fabric_attr, into, nullptr);
  };
  if (const int code = open_into(fabric_, fabric); code != 0) return failure("fi_fabric", code);
  const auto domain = [&](fid_domain** into) { return fi_domain(fabric_.get(), info_.get(), into, nullptr); };
  if (const int code = open_into(domain_, domain); code != 0) return failure("fi_domain", code);

  fi_av_attr of_peers{};
  of_peers.type = info_->domain_attr->av_type;
  const auto peers = [&](fid_av** into) { return fi_av_open(domain_.get(), &of_peers, into, nullptr); };
  if (const int code = open_into(peers_, peers); code != 0) return failure("fi_av_open", code);

  fi_cq_attr of_completions{};
  of_completions.size = outstanding;
  of_completions.format = FI_CQ_FORMAT_CONTEXT;
  of_completions.wait_obj = FI_WAIT_NONE;
  const auto queue = [&](fid_cq** into) { return fi_cq_open(domain_.get(), &of_completions, into, nullptr); };
  if (const int code = open_into(completions_, queue); code != 0) return failure("fi_cq_open", code);

  const auto endpoint = [&](fid_ep** into) { return fi_endpoint(domain_.get(), info_.get(), into, nullptr); };
  if (const int code = open_into(endpoint_, endpoint); code != 0) return failure("fi_endpoint", code);
  int code = fi_ep_bind(endpoint_.get(), &peers_->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_RECV);
  if (code != 0) return failure("fi_ep_bind", code);
  code = fi_enable(endpoint_.get());
  if (code != 0) return failure("fi_enable", code);
  return {};
}

Result<void> LibfabricEnd::lend(std::span<std::uint64_t> words) {
  const auto region = [&](fid_mr** into) {
    return fi_mr_reg(domain_.get(), words.data(), words.size_bytes(), FI_REMOTE_READ, 0, region_key, 0, into,
                     nullptr);
  };
  if (const int code = open_into(lent_, region); code != 0) return failure("fi_mr_reg", code);
  return {};
}

Result<LibfabricEnd::Address> LibfabricEnd::address() const {
  Address found;
  found.length_bytes = found.bytes.size();
  const int code = fi_getname(&endpoint_->fid, found.bytes.data(), &found.length_bytes);
  if (code != 0) return failure("fi_getname", code);
  return found;
}

Result<void> LibfabricEnd::read_from(const Address& target) {
  const int inserted = fi_av_insert(peers_.get(), target.bytes.data(), 1, &target_, 0, nullptr);
  if (inserted != 1) return failure("fi_av_insert", inserted < 0 ? inserted : -FI_EINVAL);
  return {};
}

Result<bool> LibfabricEnd::read(std::uint64_t offset_bytes, std::uint64_t& into, void* context) {
  const ssize_t code =
      fi_read(endpoint_.get(), &into, sizeof into, nullptr, target_, offset_bytes, region_key, context);
  if (code == -FI_EAGAIN) return false;
  if (code != 0) return failure("fi_read", code);
  return true;
}

Result<std::span<const fi_cq_entry>> LibfabricEnd::poll() {
  const ssize_t count = fi_cq_read(completions_.get(), completed_.data(), completed_.size());
  if (count >= 0) return std::span<const fi_cq_entry>(completed_).first(static_cast<std::size_t>(count));
  if (count == -FI_EAGAIN) return std::span<const fi_cq_entry>();
  if (count != -FI_EAVAIL) return failure("fi_cq_read", count);
  fi_cq_err_entry entry{};
  const ssize_t code = fi_cq_readerr(completions_.get(), &entry, 0);
  return failure("a read", code < 0 ? code : -entry.err);
}

std::unexpected<Error> LibfabricEnd::failure(const char* step, std::int64_t code) const {
  const char* const reason = calls_.text_of(static_cast<int>(-code));
  return fail(code == -FI_ENODATA ? Errc::not_found : Errc::io, "bench",
              fmt::format("libfabric: {}: {}", step, reason));
}

}  // namespace loch::bench
