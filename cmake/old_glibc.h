// SPDX-License-Identifier: Apache-2.0
// Included before every file of the portable command line (cmake/portable.cmake). The sysroot has
// glibc 2.31, but the oldest system that we run on has 2.28 (tests/structure/rules_binary.py). With
// 2.31, libstdc++ uses functions that came with 2.30. Without these macros it uses older ones.
#pragma once

#ifdef __cplusplus
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
#endif
