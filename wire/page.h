// SPDX-License-Identifier: Apache-2.0
// How a user who has proven itself over a control connection gets to the page in a browser, which
// has proven nothing (dashboard/port.h answers it).
#pragma once

#include <cstdint>

namespace tendril::wire {

// A request without a body, with a number like those of wire::Request. Its answer is a PoolAnswer
// whose JSON is {"url": "..."}: an address that signs its user in once.
inline constexpr uint16_t kPagePassKind = 50;

}  // namespace tendril::wire
