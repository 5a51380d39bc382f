// SPDX-License-Identifier: Apache-2.0
// What this client remembers of the ways to servers: small files in a folder of the user's, which
// may be removed at any time. For session/control. Waits for a disk.
#pragma once

#include <string>

#include "base/kept_files.h"
#include "session/choice/way_choice.h"

namespace tendril::session {

class Ways {
 public:
  explicit Ways(const std::string& folder);
  // False: nothing that still holds is known.
  bool find(const std::string& way, WayRecord* record) const;
  // *record gets the time.
  void keep(WayRecord* record) const;
  void forget(const std::string& way) const;

 private:
  base::KeptFiles files_;
};

}  // namespace tendril::session
