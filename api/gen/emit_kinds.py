# SPDX-License-Identifier: Apache-2.0
"""NAME_kinds.gen.h: the kinds of objects of one API, as an enum and as a table of their traits."""


def emit(api):
    name = api.name
    enumerators = "".join(f"  {kind.enumerator},\n" for kind in api.kinds)
    traits = "".join(
        f'    {{"{kind.name}", {flag(kind.returned)}, {flag(kind.ends_unnamed)}}},\n'
        for kind in api.kinds
    )
    reserved = "".join(
        f"inline constexpr uint64_t {constant} = {number};  // an id of no object\n"
        for constant, number in api.reserved_ids.items()
    )
    return f"""// Generated from api/{name}/api.ini by api/gen; do not edit.
#pragma once

#include "api/core/handle.h"

namespace tendril::api::{name} {{

enum class Kind : uint8_t {{
  kNone = 0,
{enumerators}  kCount,
}};

inline constexpr KindTraits kKinds[] = {{
    {{nullptr, false, false}},
{traits}}};
static_assert(sizeof kKinds / sizeof kKinds[0] == static_cast<uint64_t>(Kind::kCount));

{reserved}
constexpr Kind id_kind(uint64_t id) {{ return api::id_kind<Kind>(id); }}

}}  // namespace tendril::api::{name}
"""


def flag(value):
    return "true" if value else "false"
