// SPDX-License-Identifier: Apache-2.0
// Matrix instructions and transaction barriers. Not implemented yet: the decoder names them as
// unsupported.
#include "softgpu/ptx/decoder.h"

namespace tendril::softgpu {

bool Decoder::op_mma() { return unsupported(); }
bool Decoder::op_wmma() { return unsupported(); }
bool Decoder::op_ldmatrix() { return unsupported(); }
bool Decoder::op_mbarrier() { return unsupported(); }

}  // namespace tendril::softgpu
