// SPDX-License-Identifier: Apache-2.0
// Which of the program's variables NCCL at the server gets. They choose how it works. Files,
// plugins, interfaces and adapters are the server's, so none of these is here.
#pragma once

namespace tendril::api::nccl {

inline constexpr const char* kVariables[] = {
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CHECKS_DISABLE",
    "NCCL_CROSS_NIC",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_NTHREADS",
};
// Of one variable's value; of all together, as NAME=VALUE with a NUL behind each.
inline constexpr unsigned kVariableBytesMax = 256, kVariablesBytesMax = 16384;

}  // namespace tendril::api::nccl
