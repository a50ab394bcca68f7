// Lending: stores of this host, used as from another one, over sockets, through a Host.
#pragma once

#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <loch/loch.h>

#include "fabric/host.h"
#include "lab/temp_folder.h"
#include "net/testing/reserved_port.h"
#include "server/keeper.h"
#include "server/testing/kept_log.h"

namespace loch::server::fake {

// A folder with stores, lent by a Host when it is started.
class Lending : public testing::Test {
 public:
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  ~Lending() override { stop(); }

 protected:
  Lending() {
    host_options_.listen = {port_.at()};
    host_options_.open_store = [this](const std::string& name) { return keeper_->open(name); };
    host_options_.time_of = [this](const auto& store) { return keeper_->time_of(store); };
    host_options_.log = log_.sink();
  }

  void start() {
    keeper_ = std::make_unique<Keeper>(fabric::Access{.directory = folder_, .huge_pages = false});
    host_options_.readers = keeper_->readers();
    auto host = fabric::Host::start(host_options_);
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
  }
  void stop() {
    host_.reset();
    keeper_.reset();
  }

  Options here() const {
    Options options;
    options.directory = folder_;
    options.huge_pages = false;
    return options;
  }
  // The store, by its files.
  Store& near() {
    if (!near_) near_.emplace(Store::open("shm://store", here()).value());
    return *near_;
  }
  std::string url(const std::string& name = "store") const {
    return fmt::format("tcp://{}/{}", port_.at().text(), name);
  }
  Result<Store> open_far(Options options = {}) const {
    options.mode = Options::Mode::attach;
    options.timeout = std::chrono::seconds(5);
    return Store::open(url(), options);
  }
  Error refused(Options options = {}) const {
    auto opened = open_far(std::move(options));
    return opened ? Error{.detail = "it was opened"} : opened.error();
  }
  std::string make_key(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string log() const { return log_.text(); }
  template <class T>
  static Error error_of(const Result<T>& result) {
    return result ? Error{.detail = "no error"} : result.error();
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string folder_ = temp_.path();
  const net::fake::ReservedPort port_;  // it comes back there after a restart
  fabric::Host::Options host_options_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<fabric::Host> host_;
  std::optional<Store> near_;
  KeptLog log_;
};

}  // namespace loch::server::fake
