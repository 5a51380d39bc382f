// SPDX-License-Identifier: Apache-2.0
// One line on stderr under the product's name, as every command words its end.
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
