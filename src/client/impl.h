// Store::Impl: what one opened Store shares among the threads that use it. Each thread gets a Client of its
// own on first use, which is kept for other threads when the thread ends.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "client/client.h"

namespace loch {

class Store::Impl : public std::enable_shared_from_this<Store::Impl> {
 public:
  Impl(std::string url, const Options& options, const memory::Placement& placement,
       std::shared_ptr<memory::StoreMemory> memory);

  // The calling thread's client, also if its session was broken off meanwhile. Errors: as Session::open.
  Result<client::Client*> client();
  // The same if this store is the one that the thread used last; else null.
  [[nodiscard]] client::Client* client_at_hand() const;
  // What Store::get does if it is no plain hit: apart, so that a plain hit pays nothing for it.
  [[gnu::noinline]] Result<void> get(std::string_view key, std::string& into);
  // A client for the caller alone, until it is given back.
  Result<client::Client*> lend_client();
  void give_back(client::Client* client);

  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] Stats stats();
  [[nodiscard]] memory::StoreMemory& memory() { return *memory_; }

 private:
  friend struct ThreadClients;
  Result<client::Client*> first_client_of_thread();
  Result<client::Client*> living_client_of_thread(client::Client* mine);
  void bury(client::Client* lost);

  const std::uint64_t id_;  // of no other Impl of this process
  const std::string url_;
  const client::ClientOptions options_;
  std::shared_ptr<memory::StoreMemory> memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<client::Client>> clients_;  // all
  std::vector<client::Client*> idle_;                     // that nobody uses now
  std::vector<std::unique_ptr<client::Client>> lost_;     // whose sessions were broken off
  Stats counted_by_lost_;
};

}  // namespace loch
