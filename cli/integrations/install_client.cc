// SPDX-License-Identifier: Apache-2.0
// `tendril install-client`: makes the client library the one that every program of this machine
// finds, by an entry of the loader's configuration. For machines without a driver whose programs
// cannot be started with `tendril run`. The machine's owner undoes it with --undo. Needs root.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "config/text.h"
#include "daemon/child_process.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

constexpr char kFolder[] = "/etc/ld.so.conf.d";
constexpr char kFile[] = "/etc/ld.so.conf.d/00-tendril.conf";  // first, so that it is found first
constexpr char kMark[] = "# Written by 'tendril install-client'; '--undo' takes it back.\n";
constexpr int kLdconfigMaxMs = 60'000;
constexpr char kPackaged[] = "/usr/lib/tendril";

Status failed(const std::string& what) {
  return base::errno_status(Code::kUnavailable, what.c_str(), errno);
}

// What ldconfig says, with these words, about the system in `root` (empty: this one).
base::Result<std::string> ldconfig(const std::string& root, std::vector<std::string> words) {
  if (!root.empty()) words.insert(words.begin(), {"-r", root});
  auto done =
      daemon::run_child("/sbin/ldconfig", words, kLdconfigMaxMs, daemon::ChildEnvironment::kWhole);
  if (!done.ok()) return done.status();
  if (done->wait_status != 0) {
    return Status(Code::kUnavailable, "/sbin/ldconfig " + daemon::describe_exit(done->wait_status) +
                                          ": " + config::trimmed(done->text));
  }
  return std::move(done->text);
}

// Where the loader finds libcuda.so.1 now. Empty: nowhere.
base::Result<std::string> found_driver(const std::string& root) {
  auto refreshed = ldconfig(root, {});
  if (!refreshed.ok()) return refreshed;
  auto cache = ldconfig(root, {"-p"});
  if (!cache.ok()) return cache.status();
  const size_t line = cache->find("\tlibcuda.so.1 (libc6,x86-64");
  const size_t path = line == std::string::npos ? line : cache->find("=> ", line);
  if (path == std::string::npos) return std::string();
  return cache->substr(path + 3, cache->find('\n', path) - path - 3);
}

// Every program of the machine, also root's, will load what is there. So nobody but root may be
// able to change it.
Status check_owner(const std::string& root, const std::string& folder) {
  std::string path = root + folder + "/libcuda.so.1";
  while (path.size() > root.size() && !path.empty()) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return failed("cannot look at '" + path + "'");
    if (info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      return Status(
          Code::kRefused,
          "'" + path +
              "' can be changed by users other than root, and all programs of "
              "this machine would load what is there; install the package tendril-client, "
              "or copy the libraries to a folder of root");
    }
    path.resize(path.rfind('/'));
  }
  return {};
}

// The folder of the client library as programs in `root` name it.
base::Result<std::string> folder_in(const std::string& root) {
  if (!root.empty() && config::variable("TENDRIL_CLIENT_DIR").empty()) {
    if (access((root + kPackaged + "/libcuda.so.1").c_str(), R_OK) == 0)
      return std::string(kPackaged);
    return Status(Code::kNotFound, "there is no " + root + kPackaged +
                                       "/libcuda.so.1; install the package tendril-client there");
  }
  auto folder = client_directory();
  if (!folder.ok()) return folder;
  if (folder->rfind(root + "/", 0) != 0)
    return Status(Code::kInvalid, "'" + *folder + "' is not in '" + root + "'");
  return folder->substr(root.size());
}

// Whether the entry is there. kRefused: somebody else wrote that file.
base::Result<bool> has_entry(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return false;
  auto text = config::read_file(path);
  if (!text.ok()) return text.status();
  if (text->rfind(kMark, 0) == 0) return true;
  return Status(Code::kRefused,
                "'" + path + "' was not written by 'tendril install-client'; remove it yourself");
}

Status write_entry(const std::string& root, const std::string& folder) {
  const std::string path = root + kFile, next = path + ".next";  // no *.conf: it is not read
  if (mkdir((root + kFolder).c_str(), 0755) != 0 && errno != EEXIST)
    return failed("cannot make '" + root + kFolder + "'");
  FILE* const file = fopen(next.c_str(), "we");
  const std::string text = kMark + folder + "\n";
  const bool written = file != nullptr && fputs(text.c_str(), file) >= 0;
  if ((file != nullptr && fclose(file) != 0) || !written ||
      rename(next.c_str(), path.c_str()) != 0) {
    Status why = failed("cannot write '" + path + "'");
    remove(next.c_str());
    return why;
  }
  return {};
}

Status undo(const std::string& root) {
  const std::string path = root + kFile;
  auto there = has_entry(path);
  if (!there.ok()) return there.status();
  if (!*there) {
    printf("nothing to undo: there is no %s\n", path.c_str());
    return {};
  }
  if (remove(path.c_str()) != 0) return failed("cannot remove '" + path + "'");
  auto done = ldconfig(root, {});
  if (!done.ok()) return done.status();
  printf("removed %s; programs no longer find Tendril's libraries by themselves\n", path.c_str());
  return {};
}

Status install(const std::string& root) {
  auto folder = folder_in(root);
  if (!folder.ok()) return folder.status();
  if (Status good = check_owner(root, *folder); !good.ok()) return good;
  if (auto there = has_entry(root + kFile); !there.ok()) return there.status();
  const std::string ours = *folder + "/libcuda.so.1";
  auto before = found_driver(root);
  if (!before.ok()) return before.status();
  if (!before->empty() && *before != ours) {
    return Status(Code::kRefused,
                  "this machine has a driver of its own, " + *before +
                      ", which its programs and its server need; start programs that use other "
                      "GPUs with 'tendril run'");
  }
  if (Status written = write_entry(root, *folder); !written.ok()) return written;
  auto now = found_driver(root);
  if (!now.ok() || *now != ours) {
    remove((root + kFile).c_str());
    (void)ldconfig(root, {}).ok();
    if (!now.ok()) return now.status();
    return Status(Code::kUnavailable, "the loader does not find " + ours + ", although " + kFile +
                                          " names its folder; does /etc/ld.so.conf include "
                                          "/etc/ld.so.conf.d/*.conf?");
  }
  printf(
      "wrote %s%s: every program finds the GPU libraries in %s.\n"
      "They attach to the servers in /etc/tendril/servers.conf, or those that TENDRIL_SERVERS\n"
      "names. 'tendril install-client --undo' takes this back.\n",
      root.c_str(), kFile, folder->c_str());
  return {};
}

}  // namespace

int install_client(const InstallOptions& options) {
  char resolved[PATH_MAX] = "";
  if (!options.root.empty() && realpath(options.root.c_str(), resolved) == nullptr)
    return complain(kFailed, failed("cannot use '" + options.root + "'"));
  const std::string root = strcmp(resolved, "/") == 0 ? "" : resolved;
  if (geteuid() != 0) {
    return complain(kFailed,
                    "this changes which libraries all programs of the machine load, and needs "
                    "root; 'tendril run' and 'tendril env' need none");
  }
  const Status done = options.undo ? undo(root) : install(root);
  return done.ok() ? 0 : complain(kFailed, done);
}

}  // namespace tendril::cli
