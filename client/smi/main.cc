// SPDX-License-Identifier: Apache-2.0
// The program nvidia-smi. People and programs start it; on one thread.
#include "client/smi/smi.h"

int main(int count, char** words) {
  return tendril::client::smi::run(
      std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count));
}
