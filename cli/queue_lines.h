// SPDX-License-Identifier: Apache-2.0
// What a person reads while a request waits in a pool's queue: all that is known at once, then only
// the lines that have changed. Pure. Used by queueing.cc.
#pragma once

#include <string>
#include <vector>

#include "wire/control.h"

namespace tendril::cli {

class QueueLines {
 public:
  // News has come. The lines to show, without their ends; often none. Without a place in the queue
  // it must come twice.
  std::vector<std::string> heard(const wire::News& news);
  // The scheduler is lost, or another one looked for; once until the next news.
  std::vector<std::string> lost(const std::string& why);
  // Something was said, so the grant must be said, too.
  bool has_spoken() const { return spoken_; }

 private:
  void add(const std::string& line, std::string* before, std::vector<std::string>* lines);

  bool spoken_ = false;
  std::string place_, reason_, start_, text_, lost_, passing_;
};

// "leases 412 (gpu3, gpu5) after 23 min"
std::string granted_line(const wire::LeaseReply& reply);

}  // namespace tendril::cli
