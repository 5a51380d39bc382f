// SPDX-License-Identifier: Apache-2.0
// The control socket. See control.h.

#include "softgpu/tool/control.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <sstream>

#include "softgpu/tool/commands.h"

namespace tendril::softgpu {
namespace {

int bound_socket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(address.sun_path, path.data(), path.size());
  struct stat there;
  if (lstat(path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) unlink(path.c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(listener, 16) == 0)
    return listener;
  const int why = errno;
  close(listener);
  errno = why;
  return -1;
}

void answer(Board& board, const char* line, FILE* client) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const int status = run_command(board, words, client, client);
  fputs(status == 0 ? "ok\n" : "failed\n", client);
  fflush(client);
}

void serve(Board& board, int connection) {
  FILE* in = fdopen(connection, "r");
  FILE* out = fdopen(dup(connection), "w");
  char line[16384];
  while (in != nullptr && out != nullptr && fgets(line, sizeof line, in) != nullptr)
    answer(board, line, out);
  if (out != nullptr) fclose(out);
  if (in != nullptr) fclose(in);
}

}  // namespace

int listen_for_commands(Board& board, const std::string& path) {
  signal(SIGPIPE, SIG_IGN);  // a client that left is no reason to end
  const int listener = bound_socket(path);
  if (listener < 0) {
    fprintf(stderr, "tendril-softgpu: cannot listen on %s: %s\n", path.c_str(), strerror(errno));
    return 1;
  }
  while (true) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) serve(board, connection);
  }
}

}  // namespace tendril::softgpu
