// SPDX-License-Identifier: Apache-2.0
// `tendril coverage`: which driver calls work remotely, from the generated report, and the digest
// of this build's calls.
#include <stdio.h>

#include "api/cuda_coverage.gen.h"
#include "api/cuda_messages.gen.h"
#include "api/opencl_coverage.gen.h"
#include "api/opencl_messages.gen.h"
#include "cli/commands.h"

namespace tendril::cli {

const char* coverage_text() { return api::cuda::kCoverageText; }

uint64_t schema_digest() { return wire::cuda::kSchemaDigest; }

uint64_t opencl_digest() { return wire::opencl::kSchemaDigest; }

int print_coverage() {
  fputs(coverage_text(), stdout);
  printf("\nOpenCL 3.0:\n\n%s", api::opencl::kCoverageText);
  return 0;
}

}  // namespace tendril::cli
