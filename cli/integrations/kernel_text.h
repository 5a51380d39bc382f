// SPDX-License-Identifier: Apache-2.0
// The text of kernel.py, which `tendril jupyter install` writes beside kernel.json. The build makes
// its definition of that file.
#pragma once

namespace tendril::cli {

extern const char kKernelText[];

}  // namespace tendril::cli
