// bench/libfabric_end: one end of a connection of libfabric's over TCP: memory of the one is read by the
// other.
//
// One thread. The library is loaded with the first end, and stays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <span>
#include <string>

#include <loch/error.h>

namespace loch::bench {

// Of libfabric's functions those that its headers do not hold.
struct LibfabricCalls {
  // Errors: not_found.
  static Result<LibfabricCalls> load();

  decltype(&fi_getinfo) get_info = nullptr;
  decltype(&fi_dupinfo) copy_info = nullptr;
  decltype(&fi_freeinfo) free_info = nullptr;
  decltype(&fi_fabric) open_fabric = nullptr;
  decltype(&fi_strerror) text_of = nullptr;
};

class LibfabricEnd {
 public:
  struct Address {
    std::array<std::byte, 64> bytes{};
    std::size_t length_bytes = 0;
  };

  enum class Side : std::uint8_t { target, reader };

  // `host` is the target's address; the kernel chooses the port. Errors of all: io, naming the step that
  // failed; not_found when there is no such library, or nothing in it that does what is wanted.
  static Result<LibfabricEnd> open(Side side, const std::string& host, std::size_t outstanding);

  // The other end may read these words by their offset from now on. They outlive this end.
  Result<void> lend(std::span<std::uint64_t> words);
  [[nodiscard]] Result<Address> address() const;

  // Whose memory is read.
  Result<void> read_from(const Address& target);
  // Begins to read 8 bytes; false when that has to be tried again after a `poll`. `into` and `context` belong
  // to libfabric until `poll` has returned the context.
  Result<bool> read(std::uint64_t offset_bytes, std::uint64_t& into, void* context);
  // Nothing happens at either end but in these calls. The contexts of what has completed; valid until the
  // next call.
  Result<std::span<const fi_cq_entry>> poll();

 private:
  struct Close {
    template <class Object>
    void operator()(Object* object) const {
      fi_close(&object->fid);
    }
  };
  template <class Object>
  using Owned = std::unique_ptr<Object, Close>;
  using Info = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

  explicit LibfabricEnd(const LibfabricCalls& calls) : calls_(calls), info_(nullptr, calls.free_info) {}
  Result<void> find_provider(Side side, const std::string& host);
  Result<void> open_objects(std::size_t outstanding);
  [[nodiscard]] std::unexpected<Error> failure(const char* step, std::int64_t code) const;
  [[nodiscard]] Info no_info() const { return {nullptr, calls_.free_info}; }

  LibfabricCalls calls_;
  Info info_;
  // Each is closed before those above it.
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> peers_;
  Owned<fid_cq> completions_;
  Owned<fid_mr> lent_;
  Owned<fid_ep> endpoint_;
  fi_addr_t target_ = FI_ADDR_UNSPEC;
  std::array<fi_cq_entry, 64> completed_{};
};

}  // namespace loch::bench
