// consumer DIRECTORY: makes a store in DIRECTORY, puts a value, reads it through a second handle, removes the
// store. Includes every public header.
#include <iostream>
#include <string>
#include <utility>

#include <loch/async.h>
#include <loch/atomics.h>
#include <loch/coro/task.h>
#include <loch/devices.h>
#include <loch/error.h>
#include <loch/loch.h>
#include <loch/stats.h>
#include <loch/truncation.h>
#include <loch/version.h>

namespace {

constexpr const char* url = "shm://package-test";

int complain(const loch::Error& error) {
  std::cerr << "consumer: " << error.message() << '\n';
  return 1;
}

int put_and_get(const loch::Options& options) {
  auto writer = loch::Store::open(url, options);
  if (!writer) return complain(writer.error());
  if (auto done = writer->put("user:17", "ada"); !done) return complain(done.error());

  auto reader = loch::Store::open(url, options);
  if (!reader) return complain(reader.error());
  auto value = reader->get("user:17");
  if (!value) return complain(value.error());
  if (*value != "ada") {
    std::cerr << "consumer: expected ada, got " << *value << '\n';
    return 1;
  }
  loch::View view;
  if (auto in_place = reader->view("user:17"); in_place) view = std::move(*in_place);
  if (view.value() != "ada") {
    std::cerr << "consumer: the view is of '" << view.value() << "', not of ada\n";
    return 1;
  }
  auto absent = reader->get("user:18");
  if (absent || absent.error().code != loch::Errc::not_found) {
    std::cerr << "consumer: a key that nobody put is not not_found\n";
    return 1;
  }
#ifdef __clang__  // which programs with coroutines are built with
  auto async = loch::Async::open(*reader);
  if (!async) return complain(async.error());
  auto awaited = async->run(async->get("user:17"));
  if (!awaited) return complain(awaited.error());
  if (*awaited != "ada") {
    std::cerr << "consumer: expected ada of a coroutine, got " << *awaited << '\n';
    return 1;
  }
#endif
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer DIRECTORY\n";
    return 2;
  }
  loch::Options options;
  options.directory = argv[1];
  const int outcome = put_and_get(options);
  if (auto gone = loch::Store::destroy(url, options); !gone) return complain(gone.error());
  return outcome;
}
