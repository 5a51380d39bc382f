// SPDX-License-Identifier: Apache-2.0
// See files.h.
#include "identity/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "config/text.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr size_t kFileBytesMax = 4u << 20;

Status failed(const std::string& doing, const std::string& path) {
  const int error = errno;
  return base::errno_status(error == ENOENT ? Code::kNotFound : Code::kUnavailable,
                            (doing + " '" + path + "'").c_str(), error);
}

Status check_folder(const std::string& path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) return failed("cannot look at", path);
  if (!S_ISDIR(facts.st_mode)) return Status(Code::kInvalid, "'" + path + "' is not a folder");
  if ((facts.st_uid != geteuid() && facts.st_uid != 0) || (facts.st_mode & 022) != 0) {
    return Status(Code::kInvalid, "others may write in the folder '" + path +
                                      "', so identities in it prove nothing; run: chmod 700 " +
                                      path);
  }
  return Status();
}

}  // namespace

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status make_folder(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string above = path.substr(0, at);
    if (mkdir(above.c_str(), 0700) != 0 && errno != EEXIST && !exists(above))
      return failed("cannot make the folder", above);
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return failed("cannot make the folder", path);
  return check_folder(path);
}

Result<std::string> read_file(const std::string& path, Secrecy secrecy) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts;
  if (!file.valid() || fstat(file.get(), &facts) != 0) return failed("cannot read", path);
  if (!S_ISREG(facts.st_mode) || size_t(facts.st_size) > kFileBytesMax)
    return Status(Code::kInvalid, "'" + path + "' is no file of ours: it is too large or special");
  if (secrecy == Secrecy::kSecret && (facts.st_mode & 077) != 0) {
    return Status(Code::kInvalid,
                  "the secret file '" + path + "' can be read by others; run: chmod 600 " + path);
  }
  std::string text(size_t(facts.st_size), 0);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(file.get(), &text[done], text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("cannot read", path);
    if (got == 0) break;
    done += size_t(got);
  }
  text.resize(done);
  return text;
}

Status write_file(const std::string& path, const std::string& text, Secrecy secrecy) {
  const std::string fresh = path + ".new";
  const mode_t mode = secrecy == Secrecy::kSecret ? 0600 : 0644;
  unlink(fresh.c_str());
  base::Fd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.valid() || fchmod(file.get(), mode) != 0) return failed("cannot write", fresh);
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("cannot write", fresh);
    done += size_t(put);
  }
  if (fsync(file.get()) != 0 || rename(fresh.c_str(), path.c_str()) != 0)
    return failed("cannot write", path);
  const base::Fd folder(open(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_CLOEXEC));
  if (folder.valid()) fsync(folder.get());
  return Status();
}

Result<base::Fd> lock_folder(const std::string& path) {
  const std::string name = path + "/lock";
  base::Fd file(open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return failed("cannot open", name);
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return failed("cannot lock", name);
  }
  return file;
}

std::vector<std::vector<std::string>> words_of_lines(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  for (const std::string& line : config::split(text, '\n')) {
    if (line[0] != '#') lines.push_back(config::split(line, ' '));
  }
  return lines;
}

std::vector<std::string> names_in_folder(const std::string& path) {
  struct Closed {
    void operator()(DIR* folder) const { closedir(folder); }
  };
  std::vector<std::string> names;
  const std::unique_ptr<DIR, Closed> folder(opendir(path.c_str()));
  if (folder == nullptr) return names;
  while (const dirent* const entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tendril::identity
