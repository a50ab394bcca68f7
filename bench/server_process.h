// bench/server_process: a peer's server, run as a child that does not outlive the benchmark.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::bench {

// The path of an installed program, searched as a shell would and in the sbin folders. Errors: not_found,
// naming the package of Debian that has it.
Result<std::string> find_program(const std::string& program, const std::string& package);

class ServerProcess {
 public:
  // Runs `arguments` (the first is the program's path) with its output in the file `log`, in the network
  // namespace that a descriptor names (-1: in this process's), and waits until `ready` says yes. When this
  // process dies the kernel kills the server. To be called from the main thread, since a child's fate hangs
  // on the thread that made it. Errors: io, with the end of the log, when the server ends; timed_out when it
  // is not ready in time; cancelled.
  static Result<ServerProcess> start(const std::vector<std::string>& arguments, const std::string& log,
                                     const std::function<bool()>& ready, std::chrono::milliseconds timeout,
                                     int network_namespace = -1);

  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess();  // kills the server and waits for its end

  [[nodiscard]] pid_t id() const { return id_; }

 private:
  friend Result<void> run_to_end(const std::vector<std::string>&, const std::string&,
                                 std::chrono::milliseconds);

  ServerProcess(pid_t id, int handle) : id_(id), handle_(handle) {}
  static Result<ServerProcess> launch(const std::vector<std::string>& arguments, const std::string& log,
                                      int network_namespace = -1);
  [[nodiscard]] bool ended_within(int wait_ms) const;

  pid_t id_;
  base::FileDescriptor handle_;  // a pidfd: readable when the server has ended
};

// Runs a program to its end, as above. Errors: io, with the end of the log, when it ends with another code
// than 0; timed_out, after which it is killed.
Result<void> run_to_end(const std::vector<std::string>& arguments, const std::string& log,
                        std::chrono::milliseconds timeout);

// Resident bytes of a process, 0 when it is not there.
std::uint64_t resident_bytes(pid_t process);

}  // namespace loch::bench
