#include <gtest/gtest.h>

#include "cmd/doctor.h"

namespace loch::cmd {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t gib = mib << 10;

// Whether it is judged so; and what is not OK says how to mend it, and what is OK says nothing of that.
testing::AssertionResult is(Status status, const Finding& finding) {
  if (finding.status != status || finding.mend.empty() != (status == Status::ok) || finding.found.empty()) {
    return testing::AssertionFailure() << finding.subject << " is " << static_cast<int>(finding.status)
                                       << ": " << finding.found << " -> " << finding.mend;
  }
  return testing::AssertionSuccess();
}

TEST(Judgement, SpaceFailsBelow16MiBAndWarnsBelow256) {
  const auto judged = [](std::uint64_t free_bytes) {
    return judge_space("/dev/shm", {.total_bytes = gib, .free_bytes = free_bytes});
  };
  EXPECT_TRUE(is(Status::fail, judged(0)));
  EXPECT_TRUE(is(Status::fail, judged(16 * mib - 1)));
  EXPECT_TRUE(is(Status::warn, judged(16 * mib)));
  EXPECT_TRUE(is(Status::warn, judged(256 * mib - 1)));
  EXPECT_TRUE(is(Status::ok, judged(256 * mib)));
  EXPECT_TRUE(judged(0).mend.contains("remount,size=8G /dev/shm"));
  EXPECT_TRUE(is(Status::ok, judge_space("/dev/shm", {.total_bytes = 0, .free_bytes = 0})));
}

TEST(Judgement, MemoryWarnsBelowThreeQuartersOfWhatTheDirectoryHasFree) {
  const Space space{.total_bytes = 8 * gib, .free_bytes = 4 * gib};
  EXPECT_TRUE(is(Status::ok, judge_memory("/dev/shm", space, 3 * gib, std::nullopt)));
  EXPECT_TRUE(is(Status::warn, judge_memory("/dev/shm", space, 3 * gib - 1, std::nullopt)));
  // The smaller of the host's and the control group's counts.
  EXPECT_TRUE(is(Status::ok, judge_memory("/dev/shm", space, 5 * gib, 3 * gib)));
  EXPECT_TRUE(is(Status::warn, judge_memory("/dev/shm", space, 5 * gib, 3 * gib - 1)));
  EXPECT_TRUE(is(Status::warn, judge_memory("/dev/shm", space, 3 * gib - 1, 5 * gib)));
}

TEST(Judgement, SwapWarnsWhereThereIsAny) {
  EXPECT_TRUE(is(Status::ok, judge_swap(0)));
  EXPECT_TRUE(is(Status::warn, judge_swap(1)));
}

TEST(Judgement, HugePagesWarnWhereNoneWereHad) {
  EXPECT_TRUE(is(Status::ok, judge_huge_pages("6.1", "never", "")));
  const Finding small = judge_huge_pages("5.10", std::nullopt, "MADV_COLLAPSE: Invalid argument");
  EXPECT_TRUE(is(Status::warn, small));
  EXPECT_TRUE(small.found.contains("MADV_COLLAPSE: Invalid argument"));
  EXPECT_TRUE(small.mend.contains("shmem_enabled"));
}

TEST(Judgement, ProcessorFailsWithoutTheSumAndWarnsWithoutAConstantClock) {
  EXPECT_TRUE(is(Status::ok, judge_processor("p", 2, {"sse4_2", "constant_tsc", "nonstop_tsc"})));
  const Finding half = judge_processor("p", 2, {"sse4_2", "constant_tsc"});
  EXPECT_TRUE(is(Status::warn, half));
  EXPECT_TRUE(half.found.ends_with("missing: nonstop_tsc")) << half.found;
  EXPECT_TRUE(is(Status::warn, judge_processor("p", 2, {"sse4_2", "nonstop_tsc"})));
  EXPECT_TRUE(is(Status::fail, judge_processor("p", 2, {"constant_tsc", "nonstop_tsc"})));
  EXPECT_TRUE(is(Status::fail, judge_processor("p", 2, {})));
}

TEST(Judgement, ClockWarnsAbove300NsAReading) {
  EXPECT_TRUE(is(Status::ok, judge_clock_source("tsc", 300)));
  EXPECT_TRUE(is(Status::warn, judge_clock_source("hpet", 301)));
  EXPECT_TRUE(is(Status::warn, judge_clock_source(std::nullopt, 1000)));
}

TEST(Judgement, LockedMemoryWarnsOfALimitWhereThereIsAnRdmaDevice) {
  EXPECT_TRUE(is(Status::ok, judge_locked_memory(std::nullopt, true)));
  EXPECT_TRUE(is(Status::ok, judge_locked_memory(64 << 10, false)));
  EXPECT_TRUE(is(Status::warn, judge_locked_memory(64 << 10, true)));
  EXPECT_TRUE(is(Status::warn, judge_locked_memory(1024 * gib, true)));
}

TEST(Judgement, LogoutWarnsWhereItTakesTheUsersStoresAlong) {
  const Logout removes{.removes_ipc = true};
  const Finding warned = judge_logout("/dev/shm", removes);
  EXPECT_TRUE(is(Status::warn, warned));
  EXPECT_TRUE(warned.mend.contains("enable-linger")) << warned.mend;
  EXPECT_TRUE(is(Status::warn, judge_logout("/dev/shm/mine", removes)));
  EXPECT_TRUE(is(Status::ok, judge_logout("/dev/shmem", removes)));
  EXPECT_TRUE(is(Status::ok, judge_logout("/mnt/stores", removes)));
  EXPECT_TRUE(is(Status::ok, judge_logout("/dev/shm", std::nullopt)));
  EXPECT_TRUE(is(Status::ok, judge_logout("/dev/shm", Logout{.removes_ipc = false})));
  EXPECT_TRUE(is(Status::ok, judge_logout("/dev/shm", Logout{.removes_ipc = true, .is_system_user = true})));
  EXPECT_TRUE(is(Status::ok, judge_logout("/dev/shm", Logout{.removes_ipc = true, .lingers = true})));
}

TEST(Judgement, OpenFilesWarnBelow256) {
  EXPECT_TRUE(is(Status::ok, judge_open_files(std::nullopt)));
  EXPECT_TRUE(is(Status::ok, judge_open_files(256)));
  EXPECT_TRUE(is(Status::warn, judge_open_files(255)));
}

TEST(Judgement, AddressesAndFilesWarnOfAnyLimit) {
  EXPECT_TRUE(is(Status::ok, judge_address_space(std::nullopt, "0")));
  EXPECT_TRUE(is(Status::warn, judge_address_space(1024 * gib, std::nullopt)));
  EXPECT_TRUE(is(Status::ok, judge_file_size(std::nullopt)));
  EXPECT_TRUE(is(Status::warn, judge_file_size(1024 * gib)));
}

class JudgedPort : public testing::Test {
 protected:
  [[nodiscard]] Finding judged() const { return judge_port(device_, port_); }
  [[nodiscard]] bool says(const char* text) const { return judged().mend.contains(text); }

  RdmaDevice device_{.name = "mlx5_0", .atomicity = RdmaDevice::Atomicity::device};
  RdmaDevice::Port port_{
      .number = 1,
      .is_active = true,
      .state = "active",
      .link_layer = "Ethernet",
      .mtu_bytes = 4096,
      .mtu_max_bytes = 4096,
      .gids = {{.index = 3, .type = "RoCE v2", .address = "10.0.0.1", .interface = "eth0"}}};
};

TEST_F(JudgedPort, IsOkWhenItIsActiveWithAtomicsAnAddressAndLargePackets) {
  EXPECT_TRUE(is(Status::ok, judged()));
  port_.mtu_bytes = port_.mtu_max_bytes = 1024;  // as large as it can
  EXPECT_TRUE(is(Status::ok, judged()));
}

TEST_F(JudgedPort, WarnsWhenItIsDown) {
  port_.is_active = false;
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(says("ip link set"));
  port_.link_layer = "InfiniBand";
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(says("opensm"));
}

TEST_F(JudgedPort, WarnsWithoutAtomics) {
  device_.atomicity = RdmaDevice::Atomicity::none;
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(says("--atomics processor"));
}

TEST_F(JudgedPort, WarnsOnEthernetWithoutARoutableAddress) {
  port_.gids = {{.index = 0, .type = "RoCE v1", .address = "10.0.0.1"},
                {.index = 1, .type = "RoCE v2", .address = "fe80::1"}};
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(says("ip addr add"));
  port_.link_layer = "InfiniBand";
  EXPECT_TRUE(is(Status::ok, judged()));
}

TEST_F(JudgedPort, WarnsWhenItsPacketsAreSmallerThanTheyCouldBe) {
  port_.mtu_bytes = 2048;
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(says("ip link set INTERFACE mtu"));
  port_.link_layer = "InfiniBand";
  EXPECT_TRUE(says("subnet manager"));
}

class JudgedConnection : public testing::Test {
 protected:
  [[nodiscard]] Finding judged() const { return judge_connection(connection_); }

  RdmaConnection connection_{.host = "10.0.0.1:7457",
                             .here = {.device = "mlx5_0", .port = 1, .mtu_bytes = 4096},
                             .there = {.device = "mlx5_2", .port = 2, .mtu_bytes = 4096},
                             .packet_bytes = 4096,
                             .reads_max = 16};
};

TEST_F(JudgedConnection, IsOkWhenBothEndsAgree) {
  EXPECT_TRUE(is(Status::ok, judged()));
  EXPECT_EQ(
      judged().found,
      "10.0.0.1:7457: mlx5_0/1 here with mlx5_2/2 there, packets of 4096 B, 16 READs at a time; lochd's "
      "processor changes the store");
  connection_.device_changes = true;
  EXPECT_TRUE(judged().found.ends_with("the devices change the store"));
}

TEST_F(JudgedConnection, FailsWhenPacketsAreLargerThanAnEndTakes) {
  connection_.there.mtu_bytes = 1024;
  EXPECT_TRUE(is(Status::fail, judged()));
  EXPECT_TRUE(judged().found.ends_with("the MTU is 4096 here and 1024 there"));
  connection_.packet_bytes = 1024;
  EXPECT_TRUE(is(Status::warn, judged())) << "both take these";
}

TEST_F(JudgedConnection, WarnsWhenTheHostMayNotLockAllItsMemory) {
  connection_.there.lockable_bytes = 8 * mib;
  EXPECT_TRUE(is(Status::warn, judged()));
  EXPECT_TRUE(judged().mend.contains("LimitMEMLOCK"));
  connection_.there.lockable_bytes.reset();
  connection_.here.lockable_bytes = 8 * mib;  // this end is looked at by itself
  EXPECT_TRUE(is(Status::ok, judged()));
}

TEST_F(JudgedConnection, WarnsOfOneReadAtATime) {
  connection_.reads_max = 1;
  EXPECT_TRUE(is(Status::warn, judged()));
}

}  // namespace
}  // namespace loch::cmd
