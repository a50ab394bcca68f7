// For the tests of the store's calls: a store that is lent by what lochd is made of, and clients that come to
// it as from another host.
#pragma once

#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include <loch/loch.h>

#include "client/testing/calls.h"
#include "fabric/host.h"
#include "server/keeper.h"

namespace loch::server::fake {

class LentWorld final : public calls::World {
 public:
  struct Lending {
    std::string scheme;
    std::string address;   // of the host
    std::string source{};  // of clients; empty: as the routes say
    Atomics atomics = Atomics::processor;
  };
  static std::function<std::unique_ptr<World>()> maker(const Lending& lending) {
    return [lending] { return std::make_unique<LentWorld>(lending); };
  }

  explicit LentWorld(Lending lending)
      : World(lending.atomics),
        lending_(std::move(lending)),
        keeper_({.directory = here().directory, .huge_pages = false, .lends = true}) {
    auto host =
        fabric::Host::start({.listen = {{.host = lending_.address, .port = "0"}},
                             .verbs = lending_.scheme == "verbs",
                             .open_store = [this](const auto& name) { return keeper_.open(name); },
                             .time_of = [this](const auto& store) { return keeper_.time_of(store); }});
    EXPECT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(host.value());
  }

  Result<Store> open() override {
    Options options;
    options.mode = Options::Mode::attach;
    options.source_address = lending_.source;
    options.timeout = std::chrono::minutes(1);
    return Store::open(location(), options);
  }
  [[nodiscard]] std::string location() const override {
    return fmt::format("{}://{}:{}/{}", lending_.scheme, lending_.address, host_->ports().at(0), store_name);
  }

 private:
  const Lending lending_;
  Keeper keeper_;
  std::unique_ptr<fabric::Host> host_;
};

}  // namespace loch::server::fake
