// StoreSubject: runs of the store of this project.
#pragma once

#include "sim/run/subject.h"

namespace loch::sim {

class StoreSubject final : public Subject {
 public:
  explicit StoreSubject(const Setup& setup) : setup_(setup), map_(region_map_of(setup)) {}

  [[nodiscard]] fabric::Plan plan() const override;
  [[nodiscard]] std::vector<std::string> keys() const override;
  std::unique_ptr<Player> make_player(Scene& scene, std::uint32_t number, std::uint32_t acts,
                                      Player::Place place) const override;
  std::unique_ptr<Player> make_mover(Scene& scene, std::uint32_t number, std::uint32_t acts) const override;
  void make_node(Scene& scene, std::uint32_t node, std::uint64_t incarnation) const override;
  void tend_shard(Scene& scene, std::uint32_t shard) const override;
  [[nodiscard]] std::uint32_t shard_of(const Scene& scene, const std::string& key) const override;
  void flip_a_bit(Scene& scene) const override;
  [[nodiscard]] bool concerns(const Scene& scene, const std::string& key,
                              const fabric::Operation& operation) const override;
  [[nodiscard]] std::string place_text(fabric::Address at) const override;
  [[nodiscard]] std::string word_text(fabric::Address at, std::uint64_t word) const override;

 private:
  void make_control(std::byte* control, std::uint32_t node, std::uint64_t incarnation) const;
  [[nodiscard]] bool is_of_index(fabric::Address at) const;

  const Setup& setup_;
  const memory::RegionMap map_;
};

}  // namespace loch::sim
