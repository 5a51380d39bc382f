// SPDX-License-Identifier: Apache-2.0
// Private to etcd.cc: questions to etcd's members over HTTP or HTTPS. It asks the member that
// answered last, and the next ones if that one is away or has no quorum. Blocks until the deadline
// at most. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "identity/web/line.h"
#include "store/etcd.h"
#include "store/etcd_messages.h"

namespace tendril::store::etcd {

class Gateway {
 public:
  explicit Gateway(EtcdOptions options);

  // The body of the answer of whichever member answers. The question may reach several members
  // and be applied more than once, so it must be safe to repeat.
  base::Result<std::string> ask(const std::string& path, const std::string& body,
                                const base::Deadline& deadline);
  // For messages: "etcd://a:2379,b:2379".
  const std::string& name() const { return name_; }

 private:
  // What came of asking one member.
  struct Attempt {
    base::Status status;  // with the member's name in front
    std::string body;
    bool next = false;       // another member may answer better
    bool uncertain = false;  // it may have been applied
  };

  Attempt ask_member(const std::string& path, const std::string& body,
                     const base::Deadline& deadline);
  Attempt exchange(const std::string& path, const std::string& body,
                   const base::Deadline& deadline);
  Attempt refused(int http_status, const std::string& body);
  Attempt log_in(const base::Deadline& deadline);
  std::string member() const;

  const EtcdOptions options_;
  std::string name_;
  size_t at_ = 0;  // in options_.members
  std::optional<identity::Line> line_;
  bool line_is_used_ = false;  // it has carried an answer before
  std::string token_;
};

}  // namespace tendril::store::etcd
