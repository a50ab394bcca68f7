// The real lochd as its systemd unit has it (Type=notify): what it tells the service manager, which here is a
// socket of the test's.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/testing/comes_true.h"
#include "lab/process.h"
#include "lab/zookeeper_server.h"
#include "net/socket.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using lab::Ending;
using lab::Process;

// Where a service says what becomes of it, one datagram a message (man sd_notify).
class NotifySocket {
 public:
  explicit NotifySocket(std::string path)
      : path_(std::move(path)), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    EXPECT_LT(path_.size(), sizeof at.sun_path);
    std::memcpy(at.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0)
        << std::strerror(errno);
  }
  ~NotifySocket() { ::unlink(path_.c_str()); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // The next message, or nothing in time: "".
  [[nodiscard]] std::string next(std::chrono::milliseconds timeout = patience) const {
    pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, static_cast<int>(timeout.count())) != 1) return "";
    std::array<char, 512> message{};
    const ssize_t got = ::recv(socket_.get(), message.data(), message.size(), 0);
    return got < 0 ? "" : std::string(message.data(), static_cast<std::size_t>(got));
  }

 private:
  const std::string path_;
  const base::FileDescriptor socket_;
};

class Service : public CliTest {
 protected:
  Service() : manager_(file_path("notify")) {}

  [[nodiscard]] Process start(Arguments arguments) const {
    arguments.insert(arguments.begin(), LOCHD_PROGRAM);
    return Process::start({.words = std::move(arguments),
                           .log = file_path("log"),
                           .environment = {"NOTIFY_SOCKET=" + manager_.path()}})
        .value();
  }

  const NotifySocket manager_;
};

// Receive: a start, a SIGHUP with a sound configuration and one with a wrong one, and the end. Expect: it is
// ready when it lends and not before, after each reload again, and says that it ends before it does.
TEST_F(Service, LochdTellsTheServiceManagerWhatBecomesOfIt) {
  const std::string config = write_file("lochd.toml", "[log]\nlevel = \"info\"\n");
  Process lochd = start({"--config", config, "--listen", "127.0.0.1:0", "--directory", folder()});
  ASSERT_EQ(manager_.next(), "READY=1") << lochd.output();
  EXPECT_TRUE(lochd.output().contains("lends the stores in")) << lochd.output();
  for (const char* settings : {"[log]\nlevel = \"debug\"\n", "[log]\nlevel = \"loud\"\n"}) {
    write_file("lochd.toml", settings);
    lochd.signal(SIGHUP);
    EXPECT_EQ(manager_.next(), "RELOADING=1") << lochd.output();
    EXPECT_EQ(manager_.next(), "READY=1") << lochd.output();
  }
  EXPECT_TRUE(lochd.output().contains("goes on with what was before")) << lochd.output();
  lochd.signal(SIGTERM);
  EXPECT_EQ(manager_.next(), "STOPPING=1") << lochd.output();
  EXPECT_EQ(lochd.wait(patience), Ending{.exit_code = 0}) << lochd.output();
}

// Expect: one that can not begin is never ready.
TEST_F(Service, LochdThatCanNotBeginIsNotReady) {
  const std::string config = write_file("lochd.toml", "listen = 7\n");
  Process lochd = start({"--config", config});
  EXPECT_EQ(lochd.wait(patience), Ending{.exit_code = 2}) << lochd.output();
  EXPECT_EQ(manager_.next(std::chrono::milliseconds(0)), "");
}

// One that is to be a host of a cluster: it makes a store of its own, and then asks ZooKeeper.
class ServiceOfACluster : public Service {
 protected:
  [[nodiscard]] Process start_by(const std::string& zookeeper) const {
    const std::string config =
        write_file("lochd.toml", fmt::format("listen = [\"127.0.0.1:0\"]\nopen_to_all = true\n"
                                             "directory = \"{}\"\n[[store]]\nname = \"own\"\n"
                                             "[cluster]\ncoordinator = \"{}\"\nnode = \"a\"\n",
                                             folder(), zookeeper));
    return start({"--config", config});
  }
  // By something that takes connections and never answers.
  [[nodiscard]] Process start_by(const net::Listener& silent) const {
    return start_by(fmt::format("zookeeper://127.0.0.1:{}/loch", silent.port));
  }
  static net::Listener listen() { return net::listen({.host = "127.0.0.1", .port = "0"}).value(); }
  [[nodiscard]] static bool await_connection(const net::Listener& silent) {
    return net::wait_for(silent.socket.get(), POLLIN, base::Clock().now() + 60 * base::second_ns);
  }
};

// Receive: ZooKeeper does not answer. Expect: lochd fails, says why, and was never ready.
TEST_F(ServiceOfACluster, LochdFailsWithoutZooKeeper) {
  const net::Listener silent = listen();
  Process lochd = start_by(silent);
  EXPECT_EQ(lochd.wait(patience), Ending{.exit_code = 1}) << lochd.output();
  EXPECT_TRUE(lochd.output().contains(fmt::format("ZooKeeper at 127.0.0.1:{}", silent.port)))
      << lochd.output();
  EXPECT_TRUE(lochd.output().contains("no answer in time")) << lochd.output();
  EXPECT_EQ(manager_.next(std::chrono::milliseconds(0)), "");
}

// Receive: the same, and meanwhile the word to end. Expect: it ends as it was told, and was never ready.
TEST_F(ServiceOfACluster, LochdIsToldToEndWhileItStarts) {
  const net::Listener silent = listen();
  Process lochd = start_by(silent);
  ASSERT_TRUE(await_connection(silent)) << lochd.output();
  lochd.signal(SIGTERM);
  EXPECT_EQ(lochd.wait(patience), Ending{.exit_code = 0}) << lochd.output();
  EXPECT_EQ(manager_.next(std::chrono::milliseconds(0)), "");
}

// Receive: a SIGHUP while it waits for ZooKeeper, which answers then. Expect: it goes on, is ready, and reads
// the configuration again after that.
TEST_F(ServiceOfACluster, LochdIsToldToReloadWhileItStarts) {
  lab::ZooKeeperServer server;
  server.pause();
  Process lochd = start_by(server.url());
  ASSERT_TRUE(base::fake::comes_true([&] { return std::filesystem::exists(folder() + "/loch.own"); }))
      << lochd.output();
  lochd.signal(SIGHUP);
  server.resume();
  for (const char* told : {"READY=1", "RELOADING=1", "READY=1"})
    ASSERT_EQ(manager_.next(), told) << lochd.output();
  lochd.signal(SIGTERM);
  EXPECT_EQ(manager_.next(), "STOPPING=1") << lochd.output();
  EXPECT_EQ(lochd.wait(patience), Ending{.exit_code = 0}) << lochd.output();
}

}  // namespace
}  // namespace loch::cli
