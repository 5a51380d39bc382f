// SPDX-License-Identifier: Apache-2.0
// See front.h.
#include "reception/front.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "config/credentials.h"
#include "config/local_sockets.h"
#include "reception/local_files.h"
#include "reception/log.h"

namespace tendril::reception {

using base::Code;
using base::Status;

namespace {

Status write_port_file(const std::string& path, uint16_t port) {
  const std::string text = std::to_string(port) + "\n", fresh = path + ".new";
  const base::Fd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  // Renamed when complete, so that nobody reads half a number.
  if (!fd.valid() ||
      write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    return base::errno_status(Code::kUnavailable,
                              ("cannot write the port file '" + path + "'").c_str(), errno);
  }
  return Status();
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name[0] != 0 ? name : "localhost";
}

void prepare_process() {
  signal(SIGPIPE, SIG_IGN);
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  // A developer's debugger and the tests of another user need to look.
  if (base::env_u32("TENDRIL_DUMPABLE", 0) == 0) prctl(PR_SET_DUMPABLE, 0);
}

Front::Front(FrontOptions options) : options_(std::move(options)), host_(host_name()) {}
Front::~Front() { close(); }

base::Result<std::unique_ptr<Front>> Front::open(FrontOptions options) {
  std::unique_ptr<Front> front(new Front(std::move(options)));
  Status status = front->open_listeners();
  if (status.ok()) status = front->open_doors();
  if (status.ok()) status = front->make_guard();
  if (!status.ok()) return status;
  return front;
}

Status Front::open_listeners() {
  std::vector<std::string> addresses = options_.listen;
  if (addresses.empty()) addresses.push_back("127.0.0.1");
  for (const std::string& address : addresses) {
    // With port 0 all listeners use the port that the first one got.
    auto opened = transport::listen_tcp(address, port_ != 0 ? port_ : options_.port);
    if (!opened.ok()) return opened.status();
    for (transport::Listener& listener : *opened) {
      if (port_ == 0) port_ = listener.port;
      listeners_.push_back(std::move(listener));
    }
  }
  for (const std::string& path : options_.unix_paths) {
    const Status opened = open_unix(path, 0660);
    if (!opened.ok()) return opened;
  }
  open_local_sockets();
  if (!options_.passes_descriptors) return Status();
  // For clients of this host in other containers, which have other files. The name gives no right
  // and cannot be guessed, so nobody can take it before.
  std::array<uint8_t, 16> salt;
  if (!base::random_bytes(salt.data(), salt.size()))
    return Status(Code::kExhausted, "the kernel gives no random bytes for the name of a socket");
  descriptor_socket_ =
      "@tendril-" + std::to_string(port_) + "-" + base::hex(salt.data(), salt.size());
  return open_unix(descriptor_socket_, 0);
}

Status Front::open_unix(const std::string& path, uint32_t mode) {
  auto opened = transport::listen_unix(path, mode);
  if (opened.ok()) listeners_.push_back(opened.take());
  return opened.status();
}

// One socket for users of this host, whom the kernel names, and one for administrators.
void Front::open_local_sockets() {
  const auto folder = make_socket_folder(options_.sockets, port_);
  Status status = folder.status();
  if (folder.ok() && folder.value().empty()) return;
  if (status.ok()) {
    socket_folder_ = folder.value();
    administrators_socket_ = socket_folder_ + "/" + config::kAdministratorsSocket;
    status = open_unix(administrators_socket_, 0600);
    if (status.ok()) status = open_unix(socket_folder_ + "/" + config::kUsersSocket, 0666);
  }
  if (status.ok()) return;
  administrators_socket_.clear();
  log(Level::kWarning, "no unix sockets for administrators and users of this host: %s",
      status.message().c_str());
}

Status Front::open_doors() {
  auto token = config::load_token(options_.token_file, config::TokenUse::kServer);
  if (!token.ok()) return token.status();
  DoorsOptions options;
  options.token = token.take();
  options.guesses = &guesses_;
  options.wrong_secret = [this](const session::Peer& peer) {
    access::Principal stranger;
    stranger.from = peer.text;
    guard_->record_stranger(stranger, {false, "token", "its token is wrong"}, base::now_ns());
  };
  for (const transport::Listener& listener : listeners_) {
    if (!listener.loopback && listener.port != 0) options.others_may_come = true;
  }
  options.identity_folder = options_.identity_folder;
  options.pool = options_.pool;
  options.providers_file = options_.providers_file;
  options.address = options.others_may_come ? host_ : "127.0.0.1";
  if (port_ != wire::kDefaultPort) options.address += ":" + std::to_string(port_);
  auto doors = Doors::open(options);
  if (doors.ok()) doors_ = doors.take();
  return doors.status();
}

Status Front::make_guard() {
  access::GuardOptions options;
  options.token_file = options_.token_file;
  options.policy_file = options_.policy_file;
  options.server = host_;
  options.identities = doors_->identities();
  // A process for its own host alone keeps no audit log unless told to.
  const auto token = config::load_token(options_.token_file, config::TokenUse::kServer);
  const bool automatic = options_.audit_file == "auto";
  if (automatic) {
    if (!options_.listen.empty() || options.identities || (token.ok() && !token.value().empty()))
      options.audit_file = default_audit_file();
  } else if (options_.audit_file != "off") {
    options.audit_file = options_.audit_file;
  }
  auto guard = access::Guard::create(options);
  if (!guard.ok() && automatic && !options.audit_file.empty()) {
    options.audit_file.clear();
    auto without = access::Guard::create(options);
    if (without.ok())
      log(Level::kWarning, "no audit log: %s; name another file with --audit-log",
          guard.status().message().c_str());
    guard = std::move(without);
  }
  if (!guard.ok()) return guard.status();
  guard_ = guard.take();
  doors_->set_grace(guard_->settings()->policy.certificate_grace_s);
  return Status();
}

std::vector<std::string> Front::addresses() const {
  std::vector<std::string> texts;
  for (const transport::Listener& listener : listeners_) {
    if (listener.text != descriptor_socket_) texts.push_back(listener.text);
  }
  return texts;
}

ReceptionOptions Front::reception_options() {
  ReceptionOptions options;
  options.host = host_;
  options.seal = [this](const session::Peer& peer) { return doors_->seal(peer); };
  options.connections_max = options_.connections_max;
  options.repeats = &repeats_;
  rlimit limit;
  // Strangers must leave descriptors for everything else.
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    options.strangers_max =
        static_cast<uint32_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 16, options.strangers_max));
  }
  return options;
}

Status Front::greet() const {
  doors_->greet();
  return options_.port_file.empty() ? Status() : write_port_file(options_.port_file, port_);
}

Status Front::reload() {
  Status status = guard_->reload();
  if (!status.ok()) return status;
  doors_->set_grace(guard_->settings()->policy.certificate_grace_s);
  return doors_->reload(guard_->settings()->token);
}

void Front::close() {
  for (transport::Listener& listener : listeners_) {
    if (!listener.unlink_path.empty()) unlink(listener.unlink_path.c_str());
    listener.unlink_path.clear();
    listener.fd.reset();
  }
  if (!socket_folder_.empty()) rmdir(socket_folder_.c_str());
  socket_folder_.clear();
  if (!options_.port_file.empty() && port_ != 0) unlink(options_.port_file.c_str());
  port_ = 0;
}

}  // namespace tendril::reception
