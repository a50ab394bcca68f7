// cmd/doctor: what `loch doctor` looks at. Each probe looks at one thing of this host and says what it found
// and how to mend it. Probes change nothing; what they need to try out, they try on files of their own that
// have no name or are removed again.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <loch/devices.h>
#include <loch/loch.h>

namespace loch::cmd {

enum class Status : std::uint8_t { ok, warn, fail };

struct Finding {
  std::string subject{};  // "huge pages"
  Status status = Status::ok;
  std::string found{};  // what is so
  std::string mend{};   // what to do; empty if nothing need be done
};

// Memory (doctor_memory.cc).
Finding probe_directory(const std::string& directory);  // exists, of memory, writable
Finding probe_space(const std::string& directory);      // size and free
Finding probe_stores(const Options& options);           // what other stores take
Finding probe_memory(
    const std::string& directory);  // the host's and the container's, against the directory's
Finding probe_swap();
Finding probe_huge_pages(const std::string& directory);  // actually tried
Finding probe_round_trip(const Options& options);        // a store made, used and destroyed, unless read_only

// Processor, kernel, limits and build (doctor_host.cc).
Finding probe_processor();
Finding probe_clock_source();
Finding probe_locked_memory();
Finding probe_open_files();
Finding probe_address_space();
Finding probe_file_size();
Finding probe_logout(const std::string& directory);  // whether what is there outlives it
Finding probe_build();

// Networks (doctor_network.cc).
std::vector<Finding> probe_rdma();  // one a port of each device
// A store: opened, and timed; and over RDMA, one for each host that it is on.
std::vector<Finding> probe_store(const Options& options, const std::string& store);

// What is made of what was read (doctor_judge.cc). A limit is nothing where there is none.
struct Space {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};
Finding judge_space(const std::string& directory, Space space);
Finding judge_memory(const std::string& directory, Space space, std::uint64_t available_bytes,
                     std::optional<std::uint64_t> group_limit_bytes);
Finding judge_swap(std::uint64_t total_bytes);
// `problem`: why pages could not be made huge; empty if they could.
Finding judge_huge_pages(const std::string& kernel, const std::optional<std::string>& shmem_enabled,
                         const std::string& problem);
Finding judge_processor(const std::string& model, long online, const std::set<std::string>& flags);
Finding judge_clock_source(const std::optional<std::string>& source, double read_ns);
Finding judge_locked_memory(std::optional<std::uint64_t> limit_bytes, bool has_rdma_device);
Finding judge_open_files(std::optional<std::uint64_t> limit);
Finding judge_address_space(std::optional<std::uint64_t> limit_bytes,
                            const std::optional<std::string>& overcommit);
Finding judge_file_size(std::optional<std::uint64_t> limit_bytes);
// What systemd-logind does about a user who is nowhere logged in any more.
struct Logout {
  bool removes_ipc = false;     // RemoveIPC=
  bool is_system_user = false;  // whose files it leaves alone
  bool lingers = false;         // one who counts as logged in for ever
};
// `logout`: nothing where nobody removes anything.
Finding judge_logout(const std::string& directory, const std::optional<Logout>& logout);
Finding judge_port(const RdmaDevice& device, const RdmaDevice::Port& port);
Finding judge_connection(const RdmaConnection& connection);

// What to do about a store that can not be opened (doctor_advice.cc): one of this host ...
std::string mend_near_store(const std::string& store, const Error& error);
// ... and one of another.
std::string mend_far_store(const Error& error);
// Whether the error says that nothing of the store can be read as it is, so that it may as well be removed.
bool is_damage(const Error& error);
// Of a host's part of a cluster's store, or of one whose words an RDMA device changes: it is sound, and
// processes of this host are told the URL that lochd lends it by.
bool is_lent_alone(const Error& error);

// The first line of a small file such as those in /proc and /sys; nothing if it can not be read.
std::optional<std::string> first_line(const std::string& path);
// The number after `field` in a file of "Field:  1234 kB" lines, in bytes where it says kB.
std::optional<std::uint64_t> field_of(const std::string& path, const std::string& field);

}  // namespace loch::cmd
