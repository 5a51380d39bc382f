// SPDX-License-Identifier: Apache-2.0
// A worker that serves two APIs: CUDA and the third one.
#include "tests/third_api/worker.h"
#include "worker/cuda/worker.h"
#include "worker/process/process.h"

int main(int argc, char** argv) {
  tendril::worker::process_main(argc, argv,
                                {tendril::worker::cuda::api(), tendril::worker::abacus::api()});
}
