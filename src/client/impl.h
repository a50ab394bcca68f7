// Store::Impl: what one opened Store shares among the threads that use it. Each thread gets a Client of its
// own on first use, which is kept for other threads when the thread ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "client/client.h"
#include "fabric/bus_guard.h"

namespace loch {

inline Result<Version> version_of(Result<std::uint64_t> written) {
  if (!written) return std::unexpected(std::move(written.error()));
  return Version{*written};
}

// The last client that this thread used: nearly always the one wanted. At a place that is known when the
// program starts, so that it is found without a call; that takes 24 bytes of what a library has that is
// loaded later. Hidden, since ids are of each library that has Loch inside it.
struct LastUsed {
  std::uint64_t id = 0;  // of its Impl; 0: none yet
  client::Client* client = nullptr;
  bool thread_ends = false;
};
inline thread_local constinit LastUsed last_used
    [[gnu::tls_model("initial-exec"), gnu::visibility("hidden")]];

class Store::Impl : public std::enable_shared_from_this<Store::Impl> {
 public:
  static std::shared_ptr<Impl> make(std::string url, const Options& options,
                                    const memory::Placement& placement,
                                    std::shared_ptr<memory::StoreMemory> memory);
  // Its sessions take their leave, one after the other. If a host does not answer, those that are left are
  // broken off.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // A client that is the caller's alone while this lives: the thread's own, or one that is given back. One on
  // another host lives as long, also where what the program is asked in the midst of a call makes calls
  // itself, and the thread gets another client by that.
  class Hold {
   public:
    Hold() = default;
    explicit Hold(client::Client* own) : Hold(own, nullptr) {}
    Hold(client::Client* lent, Impl* lender) : client_(lent), lender_(lender), is_remote_(lent->is_remote()) {
      if (is_remote_) client_->hold();
    }
    Hold(Hold&& other) noexcept
        : client_(std::exchange(other.client_, nullptr)),
          lender_(std::exchange(other.lender_, nullptr)),
          is_remote_(other.is_remote_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(client_, other.client_);
      std::swap(lender_, other.lender_);
      std::swap(is_remote_, other.is_remote_);
      return *this;
    }
    ~Hold() {
      if (client_ == nullptr) return;
      if (is_remote_) client_->let_go();
      if (lender_ != nullptr) lender_->give_back(client_);  // which nobody buries while it is lent
    }
    client::Client& operator*() const { return *client_; }
    client::Client* operator->() const { return client_; }

   private:
    client::Client* client_ = nullptr;
    Impl* lender_ = nullptr;  // of one that is not the thread's
    bool is_remote_ = false;  // the client may have gone when a View's pin has
  };

  // The calling thread's client, also if its session was broken off meanwhile; of a thread whose own has gone
  // back, because it ends, one lent. Errors: as Session::open.
  Result<Hold> client();
  // The same if this store is the one that the thread used last; else null.
  [[nodiscard]] client::Client* client_at_hand() const {
    if (last_used.id != id_) return nullptr;
    __builtin_assume(last_used.client != nullptr);
    return last_used.client;
  }
  // What a call of a client has answered, unless it came to memory that is not the store's any more.
  template <class Answer>
  [[gnu::always_inline]] Answer sound(Answer answer) const {
    make_sound(answer);
    return answer;
  }
  template <class Answer>
  [[gnu::always_inline]] void make_sound(Answer& answer) const {
    if (auto intact = this->intact(); !intact) [[unlikely]]
      answer = std::unexpected(std::move(intact.error()));
  }
  [[nodiscard]] Result<void> intact() const {
    if (!fabric::any_range_lost()) [[likely]]
      return {};
    return look_whether_intact();
  }
  // What `ask` answers of the calling thread's client. Where it says that something is on its way to another
  // host of the cluster, or that a host has ended the session, it is asked again, for as long as an operation
  // may take.
  template <class Ask>
  std::invoke_result_t<Ask, client::Client&> ask(Ask ask) {
    return ask_holding([&](Hold& mine) { return ask(*mine); });
  }
  // The same of an `ask` that may keep the client for longer.
  template <class Ask>
  std::invoke_result_t<Ask, Hold&> ask_holding(Ask ask) {
    using Answer = std::invoke_result_t<Ask, Hold&>;
    std::optional<base::Nanos> since;
    for (;;) {
      auto mine = client();
      Answer answer = mine ? ask(*mine) : Answer(std::unexpected(std::move(mine.error())));
      if (mine) make_sound(answer);
      if (!answer && answer.error().code == Errc::moved) [[unlikely]] {
        auto waited = wait_for_move(mine, &since);
        if (waited) continue;
        waited.error().key_hash = answer.error().key_hash;
        answer = std::unexpected(std::move(waited.error()));
      }
      return answer;
    }
  }
  // The same of several, each of which says what became of it.
  template <class Request, class Wanted>
  bool ask_for_each(std::span<Request> requests,
                    coro::Task<void> (client::Client::*several)(std::span<Request>), Wanted wanted);
  // What Store::get does if it is no plain hit: apart, so that a plain hit pays nothing for it.
  [[gnu::noinline]] Result<void> get(std::string_view key, std::string& into);
  // A client for the caller alone, until it is given back.
  Result<client::Client*> lend_client();
  void give_back(client::Client* client);

  // Whether a fork has brought it into this process. Its sessions are the parent's, whose other threads may
  // have been at work on them and hold its locks: here nothing of it is touched, nor destroyed. The client at
  // hand is never one of such a store.
  [[nodiscard]] bool is_inherited() const;
  [[nodiscard]] Error inherited(const char* operation) const;
  // `change`, which may fork; from then on, in the child, nothing is to be changed any more. Refers to it.
  [[nodiscard]] Change until_forked(const Change& change) const;

  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] Stats stats();
  [[nodiscard]] std::shared_ptr<memory::StoreMemory> memory() const;

 private:
  friend struct ThreadClients;
  Impl(std::string url, const Options& options, const memory::Placement& placement,
       std::shared_ptr<memory::StoreMemory> memory);
  Result<client::Client*> first_client_of_thread();
  Result<client::Client*> living_client_of_thread(client::Client* mine);
  client::Client* take_idle();
  Result<client::Client*> open_client();
  Result<std::unique_ptr<client::Client>> begin_client();
  bool lives(client::Client& client);
  void bury(client::Client* lost);
  using Clients = std::vector<std::unique_ptr<client::Client>>;
  void bury_locked(client::Client* lost, Clients* over);
  // `mine`: who was told so, if there is a client; `since`: when the operation was first. Errors: timed_out.
  Result<void> wait_for_move(const Result<Hold>& mine, std::optional<base::Nanos>* since) const;
  // Goes by a later map of the cluster, if there is one; else all stays as it is.
  void renew_memory(std::uint64_t epoch);
  [[nodiscard]] bool is_of_now(client::Client& client) const;
  [[nodiscard]] Result<void> look_whether_intact() const;

  const std::uint64_t id_;  // of no other Impl of this process
  const std::uint64_t made_after_forks_;
  const std::string url_;
  const Options asked_;
  hash::LocationCache locations_;
  client::ClientOptions options_;
  std::mutex renewing_;         // before mutex_
  base::Nanos renewed_at_ = 0;  // when that was tried last, and failed; under renewing_
  mutable std::mutex mutex_;
  std::shared_ptr<memory::StoreMemory> memory_;
  std::atomic<std::uint64_t> epoch_;   // of its map
  Clients clients_;                    // all
  std::vector<client::Client*> idle_;  // that nobody uses now
  Clients lost_;                       // that go as soon as nobody holds them, nor is pinned to them
  Stats counted_by_lost_;
};

}  // namespace loch
