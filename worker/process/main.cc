// SPDX-License-Identifier: Apache-2.0
// tendril-worker: the process that serves one client process with the GPU driver.
#include "worker/process/apis.h"
#include "worker/process/process.h"

int main(int argc, char** argv) {
  tendril::worker::process_main(argc, argv, tendril::worker::served_apis());
}
