// lab/namespaces: network namespaces of this machine. They have no names: each is gone with the last
// process and descriptor that holds it, however those end.
#pragma once

#include <string>
#include <vector>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::lab {

class NetworkNamespace {
 public:
  // That of the calling thread. Errors of all: io, naming the step that failed; permission, and what to do.
  static Result<NetworkNamespace> current();
  // A new one, which the calling thread is in then. Needs the privileges of root.
  static Result<NetworkNamespace> enter_new();

  // The calling thread is in it from then on, and with it every thread and process that it starts.
  [[nodiscard]] Result<void> enter() const;

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // By which commands of iproute2 know it, while this process runs.
  [[nodiscard]] std::string path() const;

 private:
  explicit NetworkNamespace(base::FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

  base::FileDescriptor descriptor_;
};

// iproute2's `ip`, run in the calling thread's namespace.
class Ip {
 public:
  // Its output goes to the file `log`. Errors: not_found, naming the package that has it.
  static Result<Ip> make(std::string log);
  // Errors: io, with what it printed; timed_out.
  [[nodiscard]] Result<void> run(std::vector<std::string> words) const;
  // Gives an interface its address, "192.0.2.1/24", and switches it on.
  [[nodiscard]] Result<void> raise(const std::string& interface, const std::string& address) const;

 private:
  Ip(std::string program, std::string log) : program_(std::move(program)), log_(std::move(log)) {}

  std::string program_;
  std::string log_;
};

}  // namespace loch::lab
