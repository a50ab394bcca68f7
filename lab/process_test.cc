#include "lab/process.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/testing/comes_true.h"
#include "base/testing/in_child.h"
#include "lab/interrupt.h"
#include "lab/lochds.h"
#include "lab/temp_folder.h"

namespace loch::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ChildProcess : public testing::Test {
 protected:
  [[nodiscard]] Command command(std::vector<std::string> words) const {
    return {.words = std::move(words), .log = log_};
  }
  [[nodiscard]] Command shell(std::string script) const {
    return command({"/bin/sh", "-c", std::move(script)});
  }

  TempFolder folder_ = TempFolder::make("/tmp").value();
  std::string log_ = folder_.path() + "/log";
  std::string mark_ = folder_.path() + "/ready";
};

TEST_F(ChildProcess, IsReadyWhenItSaysSoAndIsKilledAtTheEnd) {
  pid_t id = 0;
  {
    const auto server = Process::start_until(
        shell("touch " + mark_ + "; exec sleep 1000"), [this] { return std::filesystem::exists(mark_); },
        seconds(20));
    ASSERT_TRUE(server) << server.error().detail;
    id = server->id();
    EXPECT_EQ(kill(id, 0), 0);
  }
  EXPECT_EQ(kill(id, 0), -1);
}

TEST_F(ChildProcess, OneThatEndsAtOnceIsAnErrorWithWhatItSaid) {
  const auto server =
      Process::start_until(shell("echo no port >&2; exit 3"), [] { return false; }, seconds(20));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Errc::io);
  EXPECT_THAT(server.error().detail, HasSubstr("no port"));
}

TEST_F(ChildProcess, OneThatIsNeverReadyIsAnErrorInTime) {
  const auto server =
      Process::start_until(command({"/bin/sleep", "1000"}), [] { return false; }, milliseconds(50));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Errc::timed_out);
  EXPECT_THAT(server.error().detail, HasSubstr("/bin/sleep 1000"));
}

TEST_F(ChildProcess, RunToEndTellsSuccessFailureAndTimeApart) {
  EXPECT_TRUE(Process::run_to_end(command({"/bin/true"}), seconds(20)));
  const auto failed = Process::run_to_end(shell("echo bad line; exit 1"), seconds(20));
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().detail, HasSubstr("bad line"));
  const auto late = Process::run_to_end(command({"/bin/sleep", "1000"}), milliseconds(50));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::timed_out);
}

// Receive: a Ctrl-C, while a program runs that would go on for long. Expect: it is waited for no longer.
TEST_F(ChildProcess, RunToEndEndsAtAnInterrupt) {
  Command sleeps = shell("touch " + mark_ + "; exec sleep 1000");
  Process waits = Process::fork([&] {
                    catch_interrupts();
                    const auto ended = Process::run_to_end(sleeps, seconds(60));
                    return !ended && ended.error().code == Errc::cancelled ? 7 : 1;
                  }).value();
  ASSERT_TRUE(base::fake::comes_true([this] { return std::filesystem::exists(mark_); }));
  waits.signal(SIGINT);
  EXPECT_EQ(waits.wait_for_end(seconds(20)), Ending{.exit_code = 7});
}

TEST_F(ChildProcess, OneThatCanNotBecomeItsProgramSaysWhy) {
  std::ofstream(mark_) << "no program\n";
  std::filesystem::permissions(mark_, std::filesystem::perms::owner_read);
  const auto refused = Process::run_to_end(command({mark_}), seconds(20));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr(mark_ + ": Permission denied"));
  Command elsewhere = command({"/bin/true"});
  elsewhere.network_namespace = STDIN_FILENO;  // which is none
  const auto lost = Process::run_to_end(elsewhere, seconds(20));
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().detail, HasSubstr("setns: "));
}

TEST_F(ChildProcess, OneThatIsNotThereIsAnErrorThatNamesIt) {
  const auto absent = Process::start(command({"/no/such/program"}));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::io);
  EXPECT_THAT(absent.error().detail, HasSubstr("/no/such/program: No such file"));
}

TEST_F(ChildProcess, ItsEndIsToldAgainAndAgain) {
  Process exits = Process::start(shell("exit 3")).value();
  for (int times = 0; times < 2; ++times) EXPECT_EQ(exits.wait(seconds(20)), Ending{.exit_code = 3});
  EXPECT_EQ(exits.kill().code(), 3);
  Process sleeps = Process::start(command({"/bin/sleep", "1000"})).value();
  EXPECT_EQ(sleeps.wait(milliseconds(1)), std::nullopt);
  EXPECT_EQ(sleeps.kill().code(), 128 + SIGKILL);
  EXPECT_EQ(sleeps.wait(seconds(20)), Ending{.signal = SIGKILL});
}

// Receive: a process is stopped, and goes on later. Expect: who waits for its end does not see that.
TEST_F(ChildProcess, BeingStoppedIsToldOnceAndIsNoEnd) {
  Process child = Process::fork([] {
                    ::raise(SIGSTOP);
                    return 7;
                  }).value();
  EXPECT_EQ(child.wait(seconds(20)), (Ending{.stopped = true, .signal = SIGSTOP}));
  EXPECT_EQ(child.wait(milliseconds(5)), std::nullopt);
  EXPECT_EQ(child.wait_for_end(milliseconds(5)), std::nullopt);
  child.signal(SIGCONT);
  EXPECT_EQ(child.wait_for_end(seconds(20)), Ending{.exit_code = 7});
}

TEST_F(ChildProcess, GetsWhatItIsGivenInsteadOfOurEnvironment) {
  ::setenv("LOCH_LAB_A", "ours", 1);
  ::setenv("LOCH_LAB_B", "ours", 1);
  Command prints = command({"/usr/bin/env"});
  prints.environment = {"LOCH_LAB_B=given"};
  Process all = Process::start(prints).value();
  prints.hidden = "LOCH_LAB_";
  prints.log += "-hidden";
  Process some = Process::start(prints).value();
  ::unsetenv("LOCH_LAB_A");
  ::unsetenv("LOCH_LAB_B");
  for (Process* each : {&all, &some}) {
    EXPECT_EQ(each->wait(seconds(20)), Ending{.exit_code = 0});
    EXPECT_THAT(each->output(), AllOf(HasSubstr("LOCH_LAB_B=given\n"), Not(HasSubstr("LOCH_LAB_B=ours"))));
  }
  EXPECT_THAT(all.output(), HasSubstr("LOCH_LAB_A=ours\n"));
  EXPECT_THAT(some.output(), Not(HasSubstr("LOCH_LAB_A")));
}

// Also one that is nobody's by then.
TEST_F(ChildProcess, EndsWithTheThreadThatStartedIt) {
  Command sleeps = shell("echo begun; exec sleep 1000");
  sleeps.become = [] { base::fake::give_up_root(); };
  std::optional<Process> child;
  std::thread([&] {
    child.emplace(Process::start(sleeps).value());
    EXPECT_TRUE(base::fake::comes_true([&] { return child->output() == "begun\n"; }));
  }).join();
  EXPECT_EQ(child->wait(seconds(20)), Ending{.signal = SIGKILL});
}

TEST(FindProgram, FindsWhatIsThereAndNamesThePackageOfWhatIsNot) {
  EXPECT_TRUE(find_program("sh", "dash"));
  const auto absent = find_program("loch-no-such-program", "the-package");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::not_found);
  EXPECT_THAT(absent.error().detail, HasSubstr("apt-get install the-package"));
}

TEST(FindLochd, IsTheOneThatIsNamedOrInstalledAndNoPackageIsSaidToHaveIt) {
  EXPECT_EQ(find_lochd("/some/lochd").value(), "/some/lochd");
  const auto installed = find_lochd("");
  if (installed) return;
  EXPECT_EQ(installed.error().code, Errc::not_found);
  EXPECT_THAT(installed.error().detail, AllOf(HasSubstr("--lochd"), Not(HasSubstr("apt-get"))));
}

}  // namespace
}  // namespace loch::lab
