// The backend verbs keeps what fabric.h promises, and a host breaks its queue pairs off. For a host with RDMA
// devices at LOCH_TEST_VERBS_HOST and LOCH_TEST_VERBS_HOST_TOO, and a way to it from LOCH_TEST_VERBS_CLIENT
// (tests/vm).
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/comes_true.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/conformance.h"
#include "fabric/verbs/queue_pair.h"

namespace loch::fabric::conformance {
namespace {

using testing::HasSubstr;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "127.0.0.1";
}

std::unique_ptr<HostWorld> verbs_world(Plan plan, Atomics atomics) {
  plan.atomics = atomics;
  return std::make_unique<HostWorld>(plan, "verbs", environment("LOCH_TEST_VERBS_HOST"),
                                     environment("LOCH_TEST_VERBS_CLIENT"));
}

// The processor is emulated.
Backend backend(const char* name, Atomics atomics) {
  return {.name = name,
          .make = [atomics](const Plan& plan) { return verbs_world(plan, atomics); },
          .times_fewer = 10};
}
const std::vector<Backend> backends = {backend("Verbs", Atomics::device),
                                       backend("VerbsAndAgent", Atomics::processor)};

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(backends),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Backends, ReadOnlyConformance, testing::ValuesIn(backends),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Backends, ElsewhereConformance, testing::ValuesIn(backends),
                         [](const auto& info) { return info.param.name; });

// ---- the host

Plan small_plan(Atomics atomics) {
  return {.regions = {{small_region, small_bytes}},
          .fill = [](std::span<const Mapping> /*regions*/) {},
          .atomics = atomics};
}

class VerbsHost : public testing::TestWithParam<Atomics> {
 protected:
  void start(const std::vector<std::string>& addresses, base::Nanos silence_max_ns) {
    Host::Options options{.verbs = true,
                          .open_store = [this](const std::string&) { return files_.attach(); },
                          .time_of = [this](const Fabric&) { return near_.mapped(time_, word_bytes); },
                          .readers = files_.readers(),
                          .silence_max_ns = silence_max_ns};
    for (const std::string& address : addresses) options.listen.push_back({.host = address, .port = "0"});
    auto host = Host::start(std::move(options));
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
    addresses_ = addresses;
  }
  std::unique_ptr<Session> session(std::size_t address = 0) {
    const std::string url = fmt::format("verbs://{}:{}/store", addresses_[address], host_->ports()[address]);
    return std::make_unique<Session>(
        fabric::attach(url, {.source = environment("LOCH_TEST_VERBS_CLIENT")}).value());
  }

  const Address word_{small_region, 8};
  const Address time_{small_region, 512};
  ShmWorld files_{small_plan(GetParam())};
  const std::shared_ptr<Fabric> files_here_ = files_.attach();
  Endpoint near_{files_here_, files_here_->connect()};
  std::vector<std::string> addresses_;
  std::unique_ptr<Host> host_;
};

// Receive: a session that is silent for too long, and then goes on. Expect: the host lets go of its client
// number, and nothing that the session does happens any more, which it is told.
TEST_P(VerbsHost, ASessionThatIsTakenForDeadChangesNothing) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 300 * base::millisecond_ns);
  const auto silent = session();
  const auto other = session();
  ASSERT_TRUE(silent->write_word(word_, 1).has_value());
  ASSERT_TRUE(silent->endpoint.port().claim_presence(5).value());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (other->endpoint.port().present(5)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // Of an atomic that was given to the device, nobody says that it has not happened.
  const Errc swapped = GetParam() == Atomics::device ? Errc::unavailable : Errc::moved;
  EXPECT_EQ(silent->compare_swap(word_, 1, 2).error().code, swapped);
  EXPECT_EQ(silent->write_word(word_, 3).error().code, Errc::moved);
  EXPECT_EQ(silent->read_word(word_).error().code, Errc::moved);
  EXPECT_EQ(other->read_word(word_).value(), 1U);
}

// Receive: a session that is there and asks for nothing. Expect: the store's time goes on, since the host
// does not see what it may ask the device for; and stands still when there is none.
TEST_P(VerbsHost, TimeGoesOnWhileThereAreSessions) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 30 * base::second_ns);
  const auto time = [this] { return load_word(near_.mapped(time_, word_bytes)); };
  {
    const auto idle = session();
    for (int i = 0; i < 3; ++i) {
      const base::Nanos before = base::Clock().now();
      EXPECT_TRUE(base::fake::comes_true([&] { return time() >= before; }));
    }
  }
  ASSERT_TRUE(base::fake::comes_true([&] { return host_->counts().sessions == 0; }));
  const std::uint64_t last = time();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(time(), last);
}

// Receive: a session that is broken off. Expect: it does nothing more, and the host takes it for dead.
TEST_P(VerbsHost, ASessionThatIsBrokenOffIsTakenForDead) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 30 * base::second_ns);
  const auto other = session();
  {
    const auto leaving = session();
    ASSERT_TRUE(leaving->write_word(word_, 1).has_value());
    ASSERT_TRUE(leaving->endpoint.port().claim_presence(5).value());
    leaving->endpoint.port().break_off();
    EXPECT_EQ(leaving->write_word(word_, 2).error().code, Errc::unavailable);
  }
  EXPECT_TRUE(base::fake::comes_true([&] { return !other->endpoint.port().present(5); }));
  EXPECT_EQ(other->read_word(word_).value(), 1U);
  EXPECT_EQ(host_->counts().fenced, 1U);
}

// Receive: sessions that leave, one after the other. Expect: the host hears it before it sees their queue
// pairs end.
TEST_P(VerbsHost, ASessionThatLeavesIsNotTakenForDead) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 30 * base::second_ns);
  for (int i = 0; i < 10; ++i) {
    const auto leaving = session();
    ASSERT_TRUE(leaving->write_word(word_, 1).has_value());
    ASSERT_TRUE(leaving->endpoint.port().claim_presence(5).value());
  }
  EXPECT_EQ(host_->counts().sessions, 0U);
  EXPECT_EQ(host_->counts().fenced, 0U);
}

// ---- how operations are given to the device

// What the devices of this process are told to do while this is there, by one thread.
class Doorbells {
 public:
  struct Chain {
    ibv_qp* pair = nullptr;
    std::vector<bool> signalled{};  // of each of its requests, in order
  };

  Doorbells() {
    rung_chains.clear();
    for (ibv_context* device : all()) {
      if (device->ops.post_send != &take_down) post_send = std::exchange(device->ops.post_send, &take_down);
    }
  }
  ~Doorbells() {
    for (ibv_context* device : all()) device->ops.post_send = post_send;
  }
  Doorbells(const Doorbells&) = delete;
  Doorbells& operator=(const Doorbells&) = delete;

  static std::vector<Chain> take() { return std::exchange(rung_chains, {}); }

 private:
  // All of one driver.
  [[nodiscard]] std::span<ibv_context* const> all() const {
    return {devices_.get(), static_cast<std::size_t>(count_)};
  }
  static int take_down(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** refused) {
    Chain& rung = rung_chains.emplace_back(Chain{.pair = pair});
    for (const ibv_send_wr* request = chain; request != nullptr; request = request->next)
      rung.signalled.push_back((request->send_flags & IBV_SEND_SIGNALED) != 0);
    return post_send(pair, chain, refused);
  }

  static inline std::vector<Chain> rung_chains;
  static inline decltype(ibv_context_ops::post_send) post_send = nullptr;
  int count_ = 0;
  std::unique_ptr<ibv_context*, verbs::Destroyer<&::rdma_free_devices>> devices_{::rdma_get_devices(&count_)};
};

// Receive: batches that the device carries out. Expect: each goes out as one chain, of which it tells the end
// alone.
TEST_P(VerbsHost, ABatchIsOneChainWhoseLastRequestIsSignalled) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const auto client = session();
  ASSERT_TRUE(client->read_word(word_).has_value());  // it has the key
  std::array<std::uint64_t, 8> words{};
  std::vector<Operation> reads;
  std::vector<Operation> writes;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Address line{small_region, i * cache_line_bytes};
    reads.push_back(Operation::read(line, &words[i], sizeof words[i]));
    writes.push_back(Operation::write(line, &words[i], sizeof words[i]));
  }
  const Doorbells doorbells;
  const std::vector<bool> last_of_eight{false, false, false, false, false, false, false, true};
  ASSERT_TRUE(client->perform(reads).has_value());
  auto rung = Doorbells::take();
  ASSERT_EQ(rung.size(), 1U);
  EXPECT_EQ(rung[0].signalled, last_of_eight);
  ASSERT_TRUE(client->perform(writes).has_value());
  rung = Doorbells::take();
  if (GetParam() == Atomics::processor) {
    EXPECT_EQ(rung.size(), 0U) << "the agent writes";
    return;
  }
  ASSERT_EQ(rung.size(), 1U);
  EXPECT_EQ(rung[0].signalled, last_of_eight);
}

// How it is made, and how READs go by it, is the same whosever the atomics are.
class VerbsConnection : public VerbsHost {};
INSTANTIATE_TEST_SUITE_P(Atomics, VerbsConnection, testing::Values(Atomics::processor),
                         [](const auto&) { return "Processor"; });

// Expect: an unanswered packet is sent again so often, and after so long, that a host that is cut off is
// noticed. 7 times, or after a time of 0, would be for ever.
TEST_P(VerbsConnection, AQueuePairGivesUpInTime) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const auto client = session();
  const Doorbells doorbells;
  ASSERT_TRUE(client->read_word(word_).has_value());
  const auto rung = Doorbells::take();
  ASSERT_EQ(rung.size(), 1U);
  ibv_qp_attr has{};
  ibv_qp_init_attr had{};
  ASSERT_EQ(::ibv_query_qp(rung[0].pair, &has, IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT, &had),
            0);
  EXPECT_EQ(has.retry_cnt, verbs::retry_count);
  EXPECT_LE(has.retry_cnt, 6);
  EXPECT_EQ(has.rnr_retry, verbs::receiver_not_ready_retry_count);
  EXPECT_LE(has.rnr_retry, 6);
  EXPECT_EQ(has.timeout, verbs::ack_timeout);
}

// Receive: chains whose second READ waits for the first, with other queue pairs there. Expect: all end in
// time. (If the second is fenced, Soft-RoCE forgets about one of some thousands.)
TEST_P(VerbsConnection, WhatWaitsInAChainIsNotForgotten) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 30 * base::second_ns);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 10; ++i) {
    sessions.push_back(session());
    sessions.back()->endpoint.set_timeout(5 * base::second_ns);
  }
  for (int i = 0; i < 10'000; ++i) {
    std::array<std::uint64_t, 2> words{};
    std::array operations = {Operation::read(word_, words.data(), sizeof words[0]),
                             Operation::read({small_region, 1024}, &words[1], sizeof words[1])};
    operations[1].after_previous = true;
    const auto done = sessions[static_cast<std::size_t>(i) % sessions.size()]->perform(operations);
    ASSERT_TRUE(done.has_value()) << "chain " << i << ": " << done.error().message();
  }
}

// ---- what a client's program may do otherwise

remote::Target target_of(const net::HostPort& host, bool read_only = false) {
  return {.scheme = "verbs",
          .host = host,
          .store = "store",
          .read_only = read_only,
          .source = environment("LOCH_TEST_VERBS_CLIENT")};
}
// A session's ways to the host, but for its queue pair.
struct WithoutQueuePair {
  std::shared_ptr<remote::Link> link;
  remote::Link::Joined joined = link->join({}).value();
  std::string token = net::text_of(link->ask({{"do", "queue_pair"}, {"port", joined.port}}).value(), "token");
};
Result<std::unique_ptr<verbs::QueuePair>> queue_pair_to(const net::HostPort& host, std::string_view token) {
  return verbs::QueuePair::connect(host, environment("LOCH_TEST_VERBS_CLIENT"), token,
                                   base::Clock().now() + 10 * base::second_ns);
}

// Receive: tokens that no session has, and that of one which has its queue pair already. Expect: they are
// refused, and the session has the one queue pair that is its own.
TEST_P(VerbsConnection, ATokenIsOfOneSessionAndGoodForOneQueuePair) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const net::HostPort host{.host = addresses_[0], .port = std::to_string(host_->ports()[0])};
  const WithoutQueuePair client{.link = remote::Link::open(target_of(host)).value()};
  ASSERT_EQ(client.token.size(), verbs::token_digits);
  const auto expect_refused = [&](std::string_view token) {
    const auto pair = queue_pair_to(host, token);
    ASSERT_FALSE(pair.has_value()) << token;
    EXPECT_EQ(pair.error().code, Errc::permission) << token;
    EXPECT_THAT(pair.error().detail, HasSubstr("refuses the queue pair")) << token;
  };
  std::string nearly = client.token;
  nearly.back() = nearly.back() == '0' ? '1' : '0';
  expect_refused(nearly);
  expect_refused(std::string_view(client.token).substr(0, verbs::token_digits - 1));
  expect_refused({});
  {
    const auto pair = queue_pair_to(host, client.token);
    ASSERT_TRUE(pair.has_value()) << pair.error().message();
    expect_refused(client.token);
  }
  expect_refused(client.token);  // nor when that one has ended
}

// Receive: a compare-swap by the data connection, which ends before the answer comes. Expect: who has the
// session is told that it is over, and so tells no host that its client number is free.
TEST_P(VerbsConnection, ASessionIsOverWithItsDataConnection) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const net::HostPort host{.host = addresses_[0], .port = std::to_string(host_->ports()[0])};
  const auto fabric = remote::RemoteFabric::attach(target_of(host)).value();
  const auto port = fabric->connect("").value();
  struct Done : Completion {
    std::optional<Result<void>> outcome;
  } done;
  done.complete = [](Completion& self, Result<void> outcome) {
    static_cast<Done&>(self).outcome = std::move(outcome);
  };
  host_.reset();
  auto swap = Operation::compare_swap(word_, 0, 1);
  const base::Nanos deadline = base::Clock().now() + 10 * base::second_ns;
  port->post({&swap, 1}, deadline, done);
  while (!done.outcome && base::Clock().now() < deadline + base::second_ns) port->progress();
  ASSERT_TRUE(done.outcome.has_value());
  EXPECT_FALSE(done.outcome->has_value());
  EXPECT_TRUE(port->is_severed());
}

// Receive: a client whose device bears fewer READs and atomics at a time than the host's. Expect: it is
// granted no more than it asks for, since its end takes that over.
TEST_P(VerbsConnection, AClientIsGrantedNoMoreOperationsThanItAsksFor) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const net::HostPort host{.host = addresses_[0], .port = std::to_string(host_->ports()[0])};
  const WithoutQueuePair client{.link = remote::Link::open(target_of(host)).value()};
  const base::Nanos deadline = base::Clock().now() + 10 * base::second_ns;
  const auto events = verbs::open_event_channel().value();
  const auto expect = [&](rdma_cm_event_type type) {
    const auto event = verbs::wait_event(*events, deadline);
    ASSERT_TRUE(event != nullptr) << type;
    ASSERT_EQ(event->event, type);
  };
  rdma_cm_id* made = nullptr;
  ASSERT_EQ(::rdma_create_id(events.get(), &made, nullptr, RDMA_PS_TCP), 0);
  const verbs::Id id(made);
  auto from = net::look_up({.host = environment("LOCH_TEST_VERBS_CLIENT"), .port = "0"}, deadline).value();
  auto to = net::look_up(host, deadline).value();
  constexpr int patience_ms = 10'000;
  ASSERT_EQ(::rdma_resolve_addr(id.get(), from.get(), to.get(), patience_ms), 0);
  expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(::rdma_resolve_route(id.get(), patience_ms), 0);
  expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {
      .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  const verbs::PairOfId pair = verbs::make_queue_pair(*id, nullptr, wanted);
  ASSERT_TRUE(pair != nullptr);
  rdma_conn_param asked{};
  asked.private_data = client.token.data();
  asked.private_data_len = static_cast<std::uint8_t>(client.token.size());
  asked.initiator_depth = 2;
  ASSERT_EQ(::rdma_connect(id.get(), &asked), 0);
  expect(RDMA_CM_EVENT_ESTABLISHED);
  ibv_qp_attr has{};
  ibv_qp_init_attr had{};
  ASSERT_EQ(::ibv_query_qp(pair->qp, &has, IBV_QP_MAX_QP_RD_ATOMIC, &had), 0);
  EXPECT_EQ(has.max_rd_atomic, asked.initiator_depth);
  ::rdma_disconnect(id.get());
}

// Whatever a client's program does with its queue pair.
class RawQueuePair {
 public:
  RawQueuePair(const net::HostPort& host, bool read_only)
      : session_{.link = remote::Link::open(target_of(host, read_only)).value()},
        pair_(queue_pair_to(host, session_.token).value()) {
    const auto answer =
        session_.link
            ->ask({{"do", "key"}, {"port", session_.joined.port}, {"region", small_region}, {"at", 0}})
            .value();
    given = {.address = net::number_of(answer, "address").value(),
             .key = static_cast<std::uint32_t>(net::number_of(answer, "key").value())};
  }

  // The beginning of the region, and a key to it.
  struct Given {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
  };
  Given given;

  // What becomes of 8 bytes that go there, or come from there.
  ibv_wc_status post(ibv_wr_opcode opcode, const Given& there) {
    ibv_sge part{.addr = reinterpret_cast<std::uintptr_t>(pair_->buffer()),
                 .length = sizeof(std::uint64_t),
                 .lkey = pair_->buffer_key()};
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = opcode;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {.remote_addr = there.address, .compare_add = 1, .swap = 0, .rkey = there.key};
    } else {
      request.wr.rdma = {.remote_addr = there.address, .rkey = there.key};
    }
    return post(request);
  }
  // Of a message of nothing but that, or of 8 bytes as well.
  ibv_wc_status send(std::uint32_t immediate, bool has_bytes = false) {
    ibv_sge part{.addr = reinterpret_cast<std::uintptr_t>(pair_->buffer()),
                 .length = sizeof(std::uint64_t),
                 .lkey = pair_->buffer_key()};
    ibv_send_wr request{};
    request.sg_list = &part;
    request.num_sge = has_bytes ? 1 : 0;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htonl(immediate);
    return post(request);
  }

 private:
  // If that can not be said, the test has failed, and this is a status that no test expects.
  ibv_wc_status post(ibv_send_wr& request) {
    constexpr ibv_wc_status unknown = IBV_WC_GENERAL_ERR;
    request.wr_id = ++posted_;
    request.send_flags = IBV_SEND_SIGNALED;
    if (const int error = pair_->post(request); error != 0) {
      ADD_FAILURE() << "request " << posted_ << " can not be posted: " << std::strerror(error);
      return unknown;
    }
    ibv_wc completion{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (pair_->poll({&completion, 1}) == 0) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      ADD_FAILURE() << "request " << posted_ << " does not complete";
      return unknown;
    }
    EXPECT_EQ(completion.wr_id, posted_);
    return completion.wr_id == posted_ ? completion.status : unknown;
  }

  WithoutQueuePair session_;
  std::unique_ptr<verbs::QueuePair> pair_;
  std::uint64_t posted_ = 0;
};

// Receive: a reader that changes the host's memory by its own key, and by one that it has seen or guessed of
// a client that may. Expect: the device refuses.
TEST_P(VerbsHost, TheKeysOfAReaderAreForReading) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const net::HostPort host{.host = addresses_[0], .port = std::to_string(host_->ports()[0])};
  RawQueuePair writer(host, false);
  RawQueuePair reader(host, true);
  EXPECT_EQ(reader.post(IBV_WR_RDMA_READ, reader.given), IBV_WC_SUCCESS);
  EXPECT_EQ(writer.post(IBV_WR_RDMA_READ, writer.given), IBV_WC_SUCCESS);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    // A queue pair ends with what it may not.
    RawQueuePair writes(host, true);
    EXPECT_EQ(writes.post(opcode, writes.given), IBV_WC_REM_ACCESS_ERR);
    RawQueuePair guesses(host, true);
    EXPECT_EQ(guesses.post(opcode, writer.given), IBV_WC_REM_ACCESS_ERR);
  }
  if (GetParam() == Atomics::device) {
    EXPECT_EQ(writer.post(IBV_WR_RDMA_WRITE, writer.given), IBV_WC_SUCCESS);
  }
}

// Receive: messages that mean nothing, more than the host expects at a time, and one that it has no room for.
// Expect: nothing comes of them but the end of the queue pair that sent the last.
TEST_P(VerbsHost, TakesNoHarmFromMessages) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 60 * base::second_ns);
  const auto other = session();
  RawQueuePair writer({.host = addresses_[0], .port = std::to_string(host_->ports()[0])}, false);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(writer.send(~std::uint32_t{0} - static_cast<unsigned>(i)), IBV_WC_SUCCESS);
  EXPECT_EQ(writer.send(verbs::ExtendSoon{.region = 99, .length_bytes = 2 * region_bytes_max}.encode()),
            IBV_WC_SUCCESS);
  EXPECT_EQ(writer.post(IBV_WR_RDMA_READ, writer.given), IBV_WC_SUCCESS);
  EXPECT_NE(writer.send(0, true), IBV_WC_SUCCESS);
  EXPECT_TRUE(other->read_word(word_).has_value());
  EXPECT_EQ(other->endpoint.length_bytes(small_region), small_bytes);
  EXPECT_EQ(other->endpoint.length_bytes(99), 0U);
}

// The atomics of two devices are not atomic against each other.
TEST_P(VerbsHost, OneDeviceAloneChangesAStore) {
  start({environment("LOCH_TEST_VERBS_HOST"), environment("LOCH_TEST_VERBS_HOST_TOO")}, base::second_ns);
  auto first = session(0);
  ASSERT_TRUE(first->write_word(word_, 1).has_value());
  const auto second = session(1)->read_word(word_);
  if (GetParam() == Atomics::processor) {
    EXPECT_EQ(second.value(), 1U) << "devices only read";
    return;
  }
  EXPECT_THAT(second.error().detail, HasSubstr("refuses"));
  first = nullptr;
  EXPECT_EQ(session(1)->compare_swap(word_, 1, 2).value(), 1U) << "nobody goes by the other one any more";
}

TEST_P(VerbsHost, BothEndsOfAConnectionTellOfThemselves) {
  start({environment("LOCH_TEST_VERBS_HOST")}, base::second_ns);
  const auto its = session();
  const auto connections = its->endpoint.port().rdma_connections();
  ASSERT_TRUE(connections.has_value()) << connections.error().message();
  ASSERT_EQ(connections->size(), 1U);
  const RdmaConnection& connection = connections->front();
  EXPECT_THAT(connection.host, HasSubstr(environment("LOCH_TEST_VERBS_HOST")));
  for (const auto& [end, address] : {std::pair(connection.here, environment("LOCH_TEST_VERBS_CLIENT")),
                                     std::pair(connection.there, environment("LOCH_TEST_VERBS_HOST"))}) {
    const auto devices = rdma_devices();
    const auto device = std::ranges::find(devices, end.device, &RdmaDevice::name);
    ASSERT_NE(device, devices.end()) << end.device;
    EXPECT_EQ(end.port, 1U);
    EXPECT_EQ(end.mtu_bytes, device->ports.front().mtu_bytes);
    EXPECT_EQ(end.atomicity, device->atomicity);
    EXPECT_NE(std::ranges::count(device->ports.front().gids, address, &RdmaDevice::Gid::address), 0)
        << end.device << " has not the address " << address;
  }
  EXPECT_EQ(connection.packet_bytes, connection.here.mtu_bytes);
  EXPECT_GT(connection.reads_max, 1U);
  EXPECT_EQ(connection.device_changes, GetParam() == Atomics::device);
}

INSTANTIATE_TEST_SUITE_P(Atomics, VerbsHost, testing::Values(Atomics::device, Atomics::processor),
                         [](const auto& info) {
                           return info.param == Atomics::device ? "Device" : "Processor";
                         });

}  // namespace
}  // namespace loch::fabric::conformance
