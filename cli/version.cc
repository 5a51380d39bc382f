// SPDX-License-Identifier: Apache-2.0
// `tendril version`, and the facts about this build.
#include <stdio.h>

#include "cli/commands.h"
#include "view/json.h"
#include "wire/control.h"

namespace tendril::cli {

const char* version_text() { return wire::product_version(); }

int print_version(bool json) {
  if (json) {
    printf("%s\n", view::version_json(version_text(), schema_digest()).c_str());
  } else {
    printf("tendril %s\nprotocol %u, calls %016llx\n", version_text(), wire::kProtocolVersion,
           static_cast<unsigned long long>(schema_digest()));
  }
  return 0;
}

}  // namespace tendril::cli
