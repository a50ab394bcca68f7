#include "sim/run/paper_subject.h"

#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "sim/paper/client.h"

namespace loch::sim {
namespace {

paper::Index index_of(const Setup& setup) {
  return {.ways = setup.geometry.candidates, .rows = setup.crowd_rows, .hash_seed = base::mix(setup.seed)};
}

// Puts, gets and removes keys, and gets those that are kept: nobody puts or removes these, but they are
// moved.
class PaperPlayer final : public Player {
 public:
  PaperPlayer(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place);

  void judge() override;

 private:
  [[nodiscard]] fabric::Endpoint* endpoint() override {
    return client_ == nullptr ? nullptr : &client_->endpoint();
  }
  void close() override { client_.reset(); }
  coro::Task<void> act(Act what) override;
  Result<void> put_at_once(std::string_view key, std::string_view value) override {
    return client_->endpoint().run(client_->put(key, value));
  }

  coro::Task<void> get(std::string key);
  coro::Task<void> put(std::string key);
  coro::Task<void> erase(std::string key);
  const std::string& draw_any_key();
  void judge_get(const std::string& key);
  void judge_put(const std::string& key);

  std::unique_ptr<paper::Client> client_;
};

PaperPlayer::PaperPlayer(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place)
    : Player(scene, number, acts, place) {
  auto opened = paper::Client::open(
      shared_fabric(), number,
      {.index = index_of(scene.setup), .undo = *scene.setup.paper, .timeout_ns = scene.setup.timeout_ns});
  if (opened) client_ = std::move(*opened);
}

coro::Task<void> PaperPlayer::act(Act what) {
  if (what == Act::get) return get(draw_any_key());
  return what == Act::put ? put(draw_key()) : erase(draw_key());
}

const std::string& PaperPlayer::draw_any_key() {
  const auto& kept = scene().kept;
  const bool of_kept = random().below(2) != 0 && !kept.empty();
  return of_kept ? kept[random().below(kept.size())] : draw_key();
}

coro::Task<void> PaperPlayer::get(std::string key) {
  const auto asked = ask(Kind::get, key);
  std::string value;
  const auto result = co_await client_->get(key, &value);
  told_value(asked, result, value);
}

coro::Task<void> PaperPlayer::put(std::string key) {
  const ValueId id = scene().recorder.new_value();
  const std::string value = make_new_value(id);
  const auto asked = ask(Kind::put, key, id);
  told(asked, co_await client_->put(key, value));
}

coro::Task<void> PaperPlayer::erase(std::string key) {
  const auto asked = ask(Kind::erase, key);
  told(asked, co_await client_->remove(key));
}

// Every key can be read, and written.
void PaperPlayer::judge() {
  for (const auto* keys : {&scene().keys, &scene().kept}) {
    for (const std::string& key : *keys) judge_get(key);
  }
  for (const std::string& key : scene().keys) judge_put(key);
}

void PaperPlayer::judge_get(const std::string& key) {
  const auto asked = ask(Kind::get, key);
  std::string value;
  const auto result = client_->endpoint().run(client_->get(key, &value));
  told_value(asked, result, value);
  if (!result && result.error().code != Errc::not_found)
    scene().fail_with(fmt::format("at the end, get {}: {}", key, result.error().message()), key);
}

// That the index has no room is no fault of the protocol.
void PaperPlayer::judge_put(const std::string& key) {
  const ValueId id = scene().recorder.new_value();
  const auto asked = ask(Kind::put, key, id);
  const auto result = put_at_once(key, make_new_value(id));
  told(asked, result);
  if (!result && result.error().code != Errc::no_space)
    scene().fail_with(fmt::format("at the end, put {}: {}", key, result.error().message()), key);
}

// The data entry at or around a place.
std::string dte_text(paper::Ite ite) {
  return fmt::format("DTE {}.{}", ite.data_table() - paper::first_data_table, ite.number());
}
paper::Ite dte_at(fabric::Address at) {
  return paper::Ite::of(at.region, static_cast<std::uint32_t>(at.offset_bytes / paper::dte_bytes));
}

std::string key_at(const fabric::fake::MemoryStore& memory, paper::Ite ite) {
  paper::DteHeader header;
  const std::byte* dte = memory.at(ite.address());
  std::memcpy(&header, dte, sizeof header);
  return {reinterpret_cast<const char*>(dte) + sizeof header, header.key_bytes};
}

}  // namespace

fabric::Plan PaperSubject::plan() const {
  return {.regions = {{paper::index_table, index_of(setup_).bytes()}}, .fill = {}};
}

std::unique_ptr<Player> PaperSubject::make_player(Scene& scene, std::uint32_t number, std::uint32_t acts,
                                                  Player::Place place) const {
  return std::make_unique<PaperPlayer>(scene, number, acts, place);
}

bool PaperSubject::concerns(const Scene& scene, const std::string& key,
                            const fabric::Operation& operation) const {
  if (operation.at.region != paper::index_table)
    return key_at(scene.store->memory(), dte_at(operation.at)) == key;
  const paper::Index index = index_of(setup_);
  for (std::uint32_t way = 0; way < index.ways; ++way) {
    if (index.candidate(key, way) == operation.at) return true;
  }
  return false;
}

std::string PaperSubject::place_text(fabric::Address at) const {
  return at.region == paper::index_table ? fmt::format("ITE {}", at.offset_bytes / sizeof(std::uint64_t))
                                         : dte_text(dte_at(at));
}

std::string PaperSubject::word_text(fabric::Address at, std::uint64_t word) const {
  if (at.region != paper::index_table) return word != 0 ? "valid" : "invalid";
  return word == 0 ? "empty" : dte_text({word});
}

}  // namespace loch::sim
