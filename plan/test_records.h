// SPDX-License-Identifier: Apache-2.0
// Reads records that a test has written as text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/records.h"

namespace tendril::plan {

// Of all files together. The test fails if one cannot be read.
inline Records records_of(const std::vector<std::string>& files) {
  RecordReader reader;
  for (const std::string& file : files) {
    const base::Status status = reader.add(file);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  auto records = reader.finish();
  EXPECT_TRUE(records.ok()) << records.status().message();
  return records.ok() ? records.take() : Records();
}

// What is wrong with the file; empty: nothing.
inline std::string why_not(const std::string& file) {
  RecordReader reader;
  const base::Status status = reader.add(file);
  return status.ok() ? reader.finish().status().message() : status.message();
}

}  // namespace tendril::plan
