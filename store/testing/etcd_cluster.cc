// SPDX-License-Identifier: Apache-2.0
// See etcd_cluster.h.
#include "store/testing/etcd_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

namespace tendril::store {

namespace {

constexpr const char* kProgram = "/usr/bin/etcd";

}  // namespace

bool EtcdCluster::is_available() { return access(kProgram, X_OK) == 0; }

uint16_t free_port() {
  const base::Fd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(made.get(), any, bytes) != 0 || getsockname(made.get(), any, &bytes) != 0) return 0;
  return ntohs(address.sin_port);
}

EtcdCluster::EtcdCluster(size_t members, std::vector<std::string> more, bool secure)
    : more_(std::move(more)), scheme_(secure ? "https://" : "http://"), processes_(members, 0) {
  for (size_t i = 0; i < members; ++i) {
    clients_.push_back("127.0.0.1:" + std::to_string(free_port()));
    peers_.push_back("127.0.0.1:" + std::to_string(free_port()));
  }
  for (size_t i = 0; i < members; ++i) start(i);
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < processes_.size(); ++i) kill(i);
}

std::string EtcdCluster::log(size_t member) const {
  return folder_ / ("m" + std::to_string(member) + ".log");
}

void EtcdCluster::start(size_t member) {
  std::string all;
  for (size_t i = 0; i < peers_.size(); ++i)
    all += (i == 0 ? "m" : ",m") + std::to_string(i) + "=http://" + peers_[i];
  const std::string name = "m" + std::to_string(member), client = scheme_ + clients_[member],
                    peer = "http://" + peers_[member];
  std::vector<std::string> words = {kProgram,
                                    "--name",
                                    name,
                                    "--data-dir",
                                    folder_ / name,
                                    "--listen-client-urls",
                                    client,
                                    "--advertise-client-urls",
                                    client,
                                    "--listen-peer-urls",
                                    peer,
                                    "--initial-advertise-peer-urls",
                                    peer,
                                    "--initial-cluster",
                                    all};
  words.insert(words.end(), more_.begin(), more_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log_path = log(member);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log_fd = open(log_path.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
    setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 0);
    execv(kProgram, arguments.data());
    _exit(127);
  }
  processes_[member] = child;
}

void EtcdCluster::kill(size_t member) {
  if (processes_[member] <= 0) return;
  ::kill(processes_[member], SIGKILL);
  waitpid(processes_[member], nullptr, 0);
  processes_[member] = 0;
}

void EtcdCluster::pause(size_t member) { ::kill(processes_[member], SIGSTOP); }
void EtcdCluster::resume(size_t member) { ::kill(processes_[member], SIGCONT); }

}  // namespace tendril::store
