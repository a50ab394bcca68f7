// PaperSubject: runs of the paper's own protocol (sim/paper), which have to fail.
#pragma once

#include "sim/run/subject.h"

namespace loch::sim {

class PaperSubject final : public Subject {
 public:
  explicit PaperSubject(const Setup& setup) : setup_(setup) {}

  [[nodiscard]] fabric::Plan plan() const override;
  [[nodiscard]] std::vector<std::string> keys() const override { return numbered_keys("key", setup_.keys); }
  std::unique_ptr<Player> make_player(Scene& scene, std::uint32_t number, std::uint32_t acts,
                                      Player::Place place) const override;
  [[nodiscard]] bool concerns(const Scene& scene, const std::string& key,
                              const fabric::Operation& operation) const override;
  [[nodiscard]] std::string place_text(fabric::Address at) const override;
  [[nodiscard]] std::string word_text(fabric::Address at, std::uint64_t word) const override;

 private:
  const Setup& setup_;
};

}  // namespace loch::sim
