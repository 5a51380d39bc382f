// SPDX-License-Identifier: Apache-2.0
// Included before every file of rooms that calculate, in the portable build (cmake/portable.cmake).
// glibc 2.29 brought other versions of these functions, but the oldest that we run on is 2.28. The
// older versions give the same results, and set errno.
#pragma once

#if defined(__x86_64__)
#define TENDRIL_OLDEST "GLIBC_2.2.5"
#else
#define TENDRIL_OLDEST "GLIBC_2.17"
#endif
__asm__(".symver exp,exp@" TENDRIL_OLDEST);
__asm__(".symver exp2,exp2@" TENDRIL_OLDEST);
__asm__(".symver log,log@" TENDRIL_OLDEST);
__asm__(".symver pow,pow@" TENDRIL_OLDEST);
#undef TENDRIL_OLDEST
