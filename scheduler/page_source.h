// SPDX-License-Identifier: Apache-2.0
// What a pool's page shows and does: pictures and commands of the Core, as any connection would
// give them. Any thread.
#pragma once

#include "dashboard/source.h"
#include "scheduler/core.h"

namespace tendril::scheduler {

class PageSource final : public dashboard::Source {
 public:
  explicit PageSource(Core* core) : core_(core) {}

  dashboard::Rights rights(const access::Principal& who) const override {
    return dashboard::rights_of(who, true);
  }
  void look(Done<view::Picture> done) override { core_->look(std::move(done)); }
  void watch(uint64_t lease) override { core_->watch(lease); }
  void command(const access::Principal& who, const std::string& address, wire::PoolCommand command,
               Done<std::string> done) override;

 private:
  Core* const core_;
};

}  // namespace tendril::scheduler
