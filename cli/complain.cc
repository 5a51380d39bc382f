// SPDX-License-Identifier: Apache-2.0
// Prints one line on stderr under the product's name. Every command ends with it when it fails.
#include "cli/complain.h"

#include <stdio.h>

namespace tendril::cli {

int complain(int exit_status, const std::string& why) {
  fprintf(stderr, "tendril: %s\n", why.c_str());
  return exit_status;
}

int complain(int exit_status, const base::Status& why) {
  return complain(exit_status, why.message());
}

}  // namespace tendril::cli
