// KeptLog: what a host or a lochd logs, for a test to look at. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "fabric/host.h"

namespace loch::server::fake {

class KeptLog {
 public:
  // Where it goes to. May be called longer than this object lives.
  [[nodiscard]] auto sink() const {
    return [lines = lines_](fabric::Host::Level, const std::string& text) {
      const std::scoped_lock lock(lines->mutex);
      lines->text += text + "\n";
    };
  }
  [[nodiscard]] std::string text() const {
    const std::scoped_lock lock(lines_->mutex);
    return lines_->text;
  }

 private:
  struct Lines {
    std::mutex mutex;
    std::string text;
  };
  const std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

}  // namespace loch::server::fake
