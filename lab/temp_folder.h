// lab/temp_folder: a private folder that is gone when its maker is, however that ends.
//
//   PARENT/loch-lab.XXXXXX/lock    locked while the folder lives
//   PARENT/loch-lab.XXXXXX/files   the folder, empty at first
#pragma once

#include <string>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::lab {

// The lock is held by the process that made the folder and by those that it forked. Whoever makes the next
// folder at the same place removes those whose lock nobody holds: their makers were killed.
class TempFolder {
 public:
  // `parent` is an existing folder, best in memory. The path is absolute: who uses it may be in another
  // folder. Other users get to what its mode, which is 0700 at first, lets them see. Errors: io, naming the
  // path.
  static Result<TempFolder> make(const std::string& parent);

  TempFolder(TempFolder&&) = default;
  TempFolder& operator=(TempFolder&&) = delete;
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();  // removes the folder, in the process that made it

  [[nodiscard]] const std::string& path() const { return path_; }
  void keep();  // it stays, for somebody to look at

 private:
  TempFolder(std::string home, base::FileDescriptor lock);

  std::string home_;  // of the folder and its lock
  std::string path_;
  base::FileDescriptor lock_;
  int maker_;  // its process id
};

}  // namespace loch::lab
