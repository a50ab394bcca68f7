// lab/temp_folder: a private folder that is gone when its maker is, however that ends.
#pragma once

#include <string>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::lab {

// While the folder lives its lock file is locked, by the process that made it and by those that it forked.
// Whoever makes the next folder at the same place removes those whose lock nobody holds: their makers were
// killed.
class TempFolder {
 public:
  // `parent` is an existing folder, best in memory. The path is absolute: who uses it may be in another
  // folder. Errors: io, naming the path.
  static Result<TempFolder> make(const std::string& parent);

  TempFolder(TempFolder&&) = default;
  TempFolder& operator=(TempFolder&&) = delete;
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();  // removes the folder, in the process that made it

  [[nodiscard]] const std::string& path() const { return path_; }
  void keep();  // it stays, for somebody to look at

 private:
  TempFolder(std::string path, base::FileDescriptor lock);

  std::string path_;
  base::FileDescriptor lock_;
  int maker_;  // its process id
};

}  // namespace loch::lab
