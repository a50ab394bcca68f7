// What stands for libfabric_reads.cc in a build without libfabric.
#include "bench/libfabric_reads.h"

namespace loch::bench {

Result<void> find_libfabric() {
  return fail(Errc::not_found, "bench",
              "this build has no libfabric; apt-get install libfabric-dev, and build again");
}

Result<Lap> run_libfabric_reads(const LibfabricReads& /*reads*/) {
  return std::unexpected(find_libfabric().error());
}

}  // namespace loch::bench
