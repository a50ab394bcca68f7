#include "base/hash.h"

// The dispatching functions are of the shared library; this header declares them without redefining the
// inlined ones.
extern "C" XXH64_hash_t XXH3_64bits_withSeed_dispatch(const void* input, std::size_t length,
                                                      XXH64_hash_t seed);
extern "C" XXH64_hash_t XXH3_64bits_dispatch(const void* input, std::size_t length);
extern "C" XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t* state, const void* input,
                                                     std::size_t length);

namespace loch::base {

std::uint64_t hash_long(const void* bytes, std::size_t length_bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed_dispatch(bytes, length_bytes, seed);
}

std::uint64_t checksum(const void* bytes, std::size_t length_bytes) {
  return XXH3_64bits_dispatch(bytes, length_bytes);
}

void Checksum::update(const void* bytes, std::size_t length_bytes) {
  XXH3_64bits_update_dispatch(&state_, bytes, length_bytes);
}

}  // namespace loch::base
