#include "server/config.h"

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

#include "lab/temp_folder.h"
#include "net/testing/certificates.h"

namespace loch::server {
namespace {

class ConfigTest : public testing::Test {
 protected:
  Result<Config> read(const std::string& text) {
    std::ofstream(path_) << text;
    auto config = read_config(path_);
    if (!config) return config;
    if (auto fits = check_config(*config, path_); !fits) return std::unexpected(std::move(fits.error()));
    return config;
  }
  std::string error_of(const std::string& text) {
    const auto config = read(text);
    return config ? "no error" : config.error().message();
  }

  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path_ = temp_.path() + "/lochd.toml";
};

TEST_F(ConfigTest, AnEmptyFileIsTheDefaultWhichListensOnThisHostAlone) {
  const auto config = read("");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  ASSERT_EQ(config->listen.size(), 1U);
  EXPECT_EQ(config->listen[0].text(), "127.0.0.1:7457");
  EXPECT_EQ(config->directory, "/dev/shm");
  EXPECT_FALSE(config->metrics.has_value());
  EXPECT_TRUE(check_config(default_config()).has_value());
}

// Receive: the file that is installed as an example. Expect: it says what the defaults are.
TEST_F(ConfigTest, TheDocumentedFileIsTheDefault) {
  const auto config = read_config(LOCH_SOURCE_DIR "/packaging/lochd.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const Config defaults = default_config();
  EXPECT_EQ(config->listen.at(0).text(), defaults.listen.at(0).text());
  EXPECT_EQ(config->directory, defaults.directory);
  EXPECT_EQ(config->key_file, defaults.key_file);
  EXPECT_EQ(config->other_key_file, defaults.other_key_file);
  EXPECT_EQ(config->read_key_file, defaults.read_key_file);
  EXPECT_EQ(config->open_to_all, defaults.open_to_all);
  EXPECT_EQ(config->silence_max, defaults.silence_max);
  EXPECT_EQ(config->connections_max, defaults.connections_max);
  EXPECT_EQ(config->verbs, defaults.verbs);
  EXPECT_EQ(config->huge_pages, defaults.huge_pages);
  EXPECT_FALSE(config->tls.any());
  EXPECT_EQ(config->log_level, defaults.log_level);
  EXPECT_FALSE(config->metrics.has_value());
  EXPECT_TRUE(config->stores.empty());
}

TEST_F(ConfigTest, EverySettingIsRead) {
  const auto config = read(R"(
listen = ["127.0.0.1:1", "[::1]:2", "10.0.0.7"]
directory = "/stores"
key_file = "/etc/loch/key"
other_key_file = "/etc/loch/other-key"
read_key_file = "/etc/loch/read-key"
silence_s = 30
connections_max = 100
verbs = true
huge_pages = false
[tls]
certificate = "c.pem"
key = "k.pem"
authority = "a.pem"
[log]
level = "debug"
[metrics]
listen = "127.0.0.1"
[[store]]
name = "sessions"
candidates = 2
max_mib = 64
expiry_ms = 500
mode = "660"
group = "root"
[[store]]
name = "other"
cluster = true
[cluster]
coordinator = "file:/etc/loch/cluster.toml"
node = "a"
)");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->listen.at(1).text(), "[::1]:2");
  EXPECT_EQ(config->listen.at(2).text(), "10.0.0.7:7457");
  EXPECT_EQ(config->directory, "/stores");
  EXPECT_EQ(config->key_file, "/etc/loch/key");
  EXPECT_EQ(config->other_key_file, "/etc/loch/other-key");
  EXPECT_EQ(config->read_key_file, "/etc/loch/read-key");
  EXPECT_EQ(config->silence_max, std::chrono::seconds(30));
  EXPECT_EQ(config->connections_max, 100U);
  EXPECT_TRUE(config->verbs);
  EXPECT_FALSE(config->huge_pages);
  EXPECT_EQ(config->tls.certificate + config->tls.key + config->tls.authority, "c.pemk.pema.pem");
  EXPECT_EQ(config->log_level, "debug");
  EXPECT_EQ(config->metrics->text(), "127.0.0.1:9457");
  ASSERT_EQ(config->stores.size(), 2U);
  EXPECT_EQ(config->stores[0].candidates, 2U);
  EXPECT_EQ(config->stores[0].max_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(config->stores[0].expiry->count(), 500);
  EXPECT_EQ(config->stores[0].mode, 0660U);
  EXPECT_EQ(config->stores[0].group, "root");
  EXPECT_FALSE(config->stores[1].mode.has_value());
  EXPECT_EQ(config->stores[1].name, "other");
  EXPECT_FALSE(config->stores[1].max_bytes.has_value());
  EXPECT_FALSE(config->stores[0].of_cluster);
  EXPECT_TRUE(config->stores[1].of_cluster);
  EXPECT_EQ(config->cluster->coordinator, "file:/etc/loch/cluster.toml");
  EXPECT_EQ(config->cluster->node, "a");
}

TEST_F(ConfigTest, MetricsNeedAnAddress) {
  EXPECT_NE(error_of("directory = \"/\"\n[metrics]\n").find(":2: [metrics] needs an address"),
            std::string::npos);
}

TEST_F(ConfigTest, AStoreOfAClusterNeedsOne) {
  EXPECT_NE(error_of("[[store]]\nname = \"s\"\ncluster = true\n").find("there is no [cluster]"),
            std::string::npos);
  EXPECT_NE(error_of("[cluster]\nnode = \"a\"\n").find("'coordinator'"), std::string::npos);
}

TEST_F(ConfigTest, WhatIsWrongIsNamedWithItsLine) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"\nlisten = \"127.0.0.1\"", ":2: 'listen' is a list"},
      {"listen = []", ":1: 'listen' is a list"},
      {"listen = [\"a:b:c\"]", "\"a:b:c\" is no address"},
      {"listen = [7]", "an address is a text"},
      {"directory = 3", ":1: 'directory' is to be a text"},
      {"silence_s = 0", "'silence_s' is a whole number, 1 to 3600"},
      {"silence_s = \"10s\"", "'silence_s' is a whole number"},
      {"huge_pages = 1", "'huge_pages' is true or false"},
      {"\n\nlisen = [\"127.0.0.1\"]", ":3: there is no setting 'lisen'"},
      {"[log]\nlevel = \"loud\"", ":2: there is no log level 'loud'"},
      {"[log]\ncolour = \"blue\"", ":2: there is no setting 'colour'"},
      {"tls = 5", "'tls' is a table"},
      {"[tls]\ncertificate = \"c.pem\"", "both or neither"},
      {"[store]\nname = \"a\"", "'store' is a list of tables"},
      {"[[store]]\ncandidates = 3", "a store needs a 'name'"},
      {"[[store]]\nname = \"a\"\ncandidates = 9", ":3: 'candidates' is a whole number, 2 to 4"},
      {"[[store]]\nname = \"a\"\nmode = \"777\"", ":3: 'mode' is \"600\", \"660\" or \"666\", not '777'"},
      {"[[store]]\nname = \"a\"\natomics = \"none\"",
       ":3: 'atomics' is \"processor\" or \"device\", not 'none'"},
      {"[[store]]\nname = \"a\"\ngroup = \"no-such-group\"", "store 'a': there is no group 'no-such-group'"},
      {"key_file = \"k\"\n[cluster]\nnode = \"a\"\ncoordinator = \"file:f\"\n[[store]]\nname = \"a\"\n"
       "cluster = true\nmode = \"660\"",
       "programs of this host get in by lochd"},
      {"listen = [\"0.0.0.0\"]", "everybody there could change every store"},
      {"other_key_file = \"o\"", "without a key_file there is none"},
      {"read_key_file = \"r\"", "without a key_file everybody may change all"},
      {"this is no toml", ":1: "},
      {"[[store]]\nname = \"a/b\"", "'a/b' has not"},
      {"[[store]]\nname = \"/stores/a\"", "'/stores/a' has not"},
      {"[[store]]\nname = \"a\"\n[[store]]\nname = \"a\"", "two stores with the 'name' 'a'"},
      {"[cluster]\nnode = \"a\"\ncoordinator = \"zookeeper://...\"", "cluster.coordinator: "},
      {"[cluster]\nnode = \"a b\"\ncoordinator = \"file:f\"", "'a b' has not"},
      {"[cluster]\nnode = \"a\"\ncoordinator = \"zk1\"", "cluster.coordinator: 'zk1' is no coordinator"},
      {"[cluster]\nnode = \"a\"\ncoordinator = \"file:f\"\n[tls]\ncertificate = \"c\"\nkey = \"k\"",
       "need tls.authority"},
      {"[cluster]\nnode = \"a\"\ncoordinator = \"file:f\"", "hosts of a cluster are clients of each other"},
      {"listen = [\"127.example.org\"]", "everybody there could change every store"},
  };
  for (const auto& each : cases) {
    const std::string error = error_of(each.text);
    EXPECT_NE(error.find(each.says), std::string::npos) << each.text << "\n" << error;
    EXPECT_NE(error.find(path_), std::string::npos) << error;
  }
  EXPECT_TRUE(read("listen = [\"0.0.0.0\"]\nopen_to_all = true").has_value());
  EXPECT_TRUE(read("listen = [\"0.0.0.0\"]\nkey_file = \"k\"").has_value());
  EXPECT_TRUE(read("listen = [\"127.0.0.2\", \"127.1\", \"localhost\", \"[::1]\"]").has_value());
  EXPECT_EQ(read_config("/no/such/file").error().code, Errc::not_found);
  EXPECT_EQ(read_config("/tmp").error().code, Errc::io) << "what can not be read is not empty";
}

// Expect: whoever is told to be let in gets in without it.
TEST_F(ConfigTest, ACookieIsForWhereNothingSaysWhoGetsIn) {
  EXPECT_TRUE(has_cookie(default_config()));
  EXPECT_TRUE(has_cookie(read("[tls]\ncertificate = \"c\"\nkey = \"k\"").value()));
  for (const char* told : {"key_file = \"k\"", "open_to_all = true",
                           "[tls]\ncertificate = \"c\"\nkey = \"k\"\nauthority = \"a\""})
    EXPECT_FALSE(has_cookie(read(told).value())) << told;
  EXPECT_TRUE(read("open_to_all = true\n[cluster]\nnode = \"a\"\ncoordinator = \"file:f\"").has_value());
}

// Expect: a host that no other one of its cluster reaches is warned of; it may be meant, on one host alone.
TEST_F(ConfigTest, WarnsOfAClusterWhoseHostsDoNotReachThisOne) {
  const std::string cluster = "\nopen_to_all = true\n[cluster]\nnode = \"a\"\ncoordinator = \"file:f\"";
  for (const char* listen : {"", "listen = [\"127.0.0.1\"]", "listen = [\"127.0.0.2\", \"[::1]:8\"]"}) {
    const auto warnings = warnings_of(read(listen + cluster).value());
    ASSERT_EQ(warnings.size(), 1U) << listen;
    EXPECT_NE(warnings[0].find("set listen = [\"0.0.0.0:7457\"]"), std::string::npos) << warnings[0];
  }
  for (const char* listen : {"listen = [\"0.0.0.0\"]", "listen = [\"127.0.0.1\", \"10.0.0.7\"]"})
    EXPECT_TRUE(warnings_of(read(listen + cluster).value()).empty()) << listen;
  EXPECT_TRUE(warnings_of(default_config()).empty());
}

TEST_F(ConfigTest, WarnsThatRdmaIsNotEncrypted) {
  const std::string tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"";
  EXPECT_TRUE(warnings_of(read(tls).value()).empty());
  EXPECT_EQ(warnings_of(read("verbs = true\n" + tls).value()).size(), 1U);
}

// Receive: a fixed list that has this host somewhere else than where it listens. Expect: a warning of it.
TEST_F(ConfigTest, WarnsOfAListThatHasThisHostElsewhere) {
  const std::string list = path_ + ".list";
  std::ofstream(list) << "hash_seed = 8152763\n[[node]]\nname = \"a\"\naddress = \"10.0.0.1:7458\"\n";
  const auto warnings = [&](const std::string& listen) {
    return warnings_of(read("listen = [" + listen + "]\nopen_to_all = true\n[cluster]\nnode = \"a\"\n" +
                            "coordinator = \"file:" + list + "\"")
                           .value());
  };
  for (const char* listen : {"\"0.0.0.0\"", "\"10.0.0.1\"", "\"10.0.0.2:7458\"", "\"host\""}) {
    const auto warned = warnings(listen);
    ASSERT_EQ(warned.size(), 1U) << listen;
    EXPECT_NE(warned[0].find("'a' is at 10.0.0.1:7458"), std::string::npos) << warned[0];
  }
  for (const char* listen : {"\"[::]:7458\"", "\"127.0.0.1\", \"10.0.0.1:7458\"", "\"host:7458\""})
    EXPECT_TRUE(warnings(listen).empty()) << listen;
}

// Expect: a store that nobody can open is warned of.
TEST_F(ConfigTest, WarnsOfDeviceAtomicsWithoutVerbs) {
  const std::string store = "[[store]]\nname = \"far\"\natomics = \"device\"";
  const auto warned = warnings_of(read(store).value());
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_NE(warned[0].find("store 'far' has atomics"), std::string::npos) << warned[0];
  EXPECT_TRUE(warnings_of(read("verbs = true\n" + store).value()).empty());
}

// Expect: a fixed list from which everybody can tell the seeds is warned of.
TEST_F(ConfigTest, WarnsOfAHashSeedThatEverybodyKnows) {
  const std::string list = path_ + ".list";
  const std::string nodes = "[[node]]\nname = \"a\"\naddress = \"10.0.0.1\"\n";
  const std::string cluster = "[cluster]\nnode = \"a\"\ncoordinator = \"file:" + list + "\"";
  const auto warnings = [&](const std::string& list_has, const std::string& also) {
    std::ofstream(list) << list_has;
    return warnings_of(read("listen = [\"0.0.0.0\"]\n" + also + cluster).value());
  };
  const auto warned = warnings(nodes, "open_to_all = true\n");
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_NE(warned[0].find("set hash_seed there"), std::string::npos) << warned[0];
  EXPECT_TRUE(warnings("hash_seed = 8152763\n" + nodes, "open_to_all = true\n").empty());
  EXPECT_TRUE(warnings(nodes, "key_file = \"k\"\n").empty());
}

TEST_F(ConfigTest, WarnsOfAPasswordThatOthersMayRead) {
  const auto warnings = [&](const std::string& at, mode_t mode) {
    const Config config =
        read(
            "listen = [\"0.0.0.0\"]\nopen_to_all = true\n[cluster]\nnode = \"a\"\ncoordinator "
            "= \"zookeeper://" +
            at + "zk1/loch\"")
            .value();
    ::chmod(path_.c_str(), mode);
    return warnings_of(config, path_);
  };
  ASSERT_EQ(warnings("ada:secret@", 0644).size(), 1U);
  EXPECT_EQ(warnings("ada:secret@", 0644)[0].find("secret"), std::string::npos);
  EXPECT_TRUE(warnings("ada:secret@", 0640).empty());
  EXPECT_TRUE(warnings("", 0644).empty());
}

TEST_F(ConfigTest, WarnsOfACertificateThatHasExpired) {
  const net::fake::Certificates certificates(temp_.path());
  const auto warnings = [&](const std::string& name) {
    return warnings_of(read("[tls]\ncertificate = \"" + certificates.file(name + ".pem") + "\"\nkey = \"" +
                            certificates.file(name + ".key") + "\"")
                           .value());
  };
  const auto warned = warnings("expired");
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_NE(warned[0].find("expired.pem expired at "), std::string::npos) << warned[0];
  EXPECT_TRUE(warnings("host").empty());
}

// Expect: what a lochd that runs does not take over is named, and nothing else.
TEST_F(ConfigTest, SaysWhatNeedsARestart) {
  const Config running = default_config();
  EXPECT_TRUE(settings_for_a_restart(running, running).empty());
  Config now = running;
  now.log_level = "debug";
  now.stores.push_back({.name = "another"});
  EXPECT_TRUE(settings_for_a_restart(running, now).empty());
  now.key_file = "k";
  now.other_key_file = "o";
  now.open_to_all = true;
  now.read_key_file = "r";
  now.tls = {.certificate = "c", .key = "k", .authority = "a"};
  now.cluster = {.coordinator = "file:f", .node = "a"};
  const std::vector<std::string> differ{"key_file",        "other_key_file", "read_key_file", "open_to_all",
                                        "tls.certificate", "tls.key",        "tls.authority", "cluster"};
  EXPECT_EQ(settings_for_a_restart(running, now), differ);
  now = running;
  now.stores.push_back({.name = "another", .of_cluster = true});
  EXPECT_EQ(settings_for_a_restart(running, now), std::vector<std::string>{"cluster"});
}

}  // namespace
}  // namespace loch::server
