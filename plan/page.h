// SPDX-License-Identifier: Apache-2.0
// The report as one page: plots as SVG, and the tables. It needs no network and runs no script;
// light or dark as the reader's system is. Everything from records is escaped. Pure.
#pragma once

#include <string>

#include "plan/report.h"

namespace tendril::plan {

// The plots alone, as a file of its own.
std::string report_svg(const Report& report);
std::string report_html(const Report& report);

}  // namespace tendril::plan
