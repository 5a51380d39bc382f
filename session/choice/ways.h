// SPDX-License-Identifier: Apache-2.0
// What is remembered of the ways to servers. A client has small files in a folder of the user's,
// which may be removed at any time. For session/control. Waits for a disk.
#pragma once

#include <string>
#include <utility>

#include "base/kept_files.h"
#include "session/choice/way_choice.h"

namespace tendril::session {

class WayMemory {
 public:
  // False: nothing that still holds is known.
  virtual bool find(const std::string& way, WayRecord* record) const = 0;
  // *record gets the time.
  virtual void keep(WayRecord* record) = 0;
  virtual void forget(const std::string& way) = 0;

 protected:
  ~WayMemory() = default;
};

class Ways final : public WayMemory {
 public:
  explicit Ways(const std::string& folder);
  bool find(const std::string& way, WayRecord* record) const override;
  void keep(WayRecord* record) override;
  void forget(const std::string& way) override;

 private:
  base::KeptFiles files_;
};

// One that somebody else keeps: a worker's, which has no folder.
class OneWay final : public WayMemory {
 public:
  // `text`: as somebody kept it.
  explicit OneWay(std::string text) : text_(std::move(text)) {}
  bool find(const std::string& way, WayRecord* record) const override;
  void keep(WayRecord* record) override;
  void forget(const std::string& way) override;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace tendril::session
