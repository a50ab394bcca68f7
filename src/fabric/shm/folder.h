// Folder: the files of a store, by the folder's descriptor, so that they are those of that folder whatever
// takes its name meanwhile. Others may be able to write to the folder: no link in it is followed.
#pragma once

#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "fabric/shm/file.h"

namespace loch::fabric::shm {

inline constexpr gid_t no_group = static_cast<gid_t>(-1);

class Folder {
 public:
  // `operation` is what errors name, here and below.
  static Result<Folder> open(std::string path, const char* operation);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path_of(const std::string& file) const { return path_ + "/" + file; }
  // Whether it has its path still, and no other folder.
  [[nodiscard]] bool is_at_path() const;
  [[nodiscard]] bool has(const std::string& file) const;
  // The same; also true if we may not look.
  [[nodiscard]] bool may_have(const std::string& file) const;
  [[nodiscard]] Result<struct stat> status(const char* operation) const;

  // To read and write. What is no plain file is an error.
  [[nodiscard]] Result<FileDescriptor> open_file(const std::string& file, const char* operation) const;
  // A new one, in a folder that nobody else uses yet.
  [[nodiscard]] Result<FileDescriptor> create_file(const std::string& file, mode_t mode, gid_t group,
                                                   const char* operation) const;
  // The one that is there, or a new one, which has its name only once it has its mode, and its group if the
  // process may give it that.
  [[nodiscard]] Result<FileDescriptor> add_file(const std::string& file, mode_t mode, gid_t group,
                                                const char* operation) const;

  // Of the folder itself. None of its files is of another mode or group for it.
  [[nodiscard]] Result<void> set_access(mode_t mode, gid_t group, const char* operation) const;

  // Removes its files, and then the folder from its path; nothing if it is not there any more, since it may
  // have been published by another name.
  void remove() const;

 private:
  Folder(std::string path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;
  FileDescriptor descriptor_;
};

// What the directory has. Errors as the system's, named with the operation.
Result<std::vector<std::string>> names_in(const std::string& directory, const char* operation);

}  // namespace loch::fabric::shm
