// SPDX-License-Identifier: Apache-2.0
// Sources: the vendor's public table of compute capabilities and its data sheets (bus); clocks of
// the H200 and of the H100 with HBM3, and the H200's bus width, as driver 580.159.04 reports them.
// A word comes before its prefixes: "H200" before "H20", "A100" before "A10".
#include "client/nvml/model.h"

namespace tendril::client::nvml {
namespace {

constexpr Model kModels[] = {
    {"B300", 10, 3, 6, 16, 0, 0, 0},
    {"B200", 10, 0, 5, 16, 0, 0, 0},
    {"GH200", 9, 0, 5, 16, 0, 0, 0},
    {"H200", 9, 0, 5, 16, 6016, 1980, 3201},
    {"H100 80GB HBM3", 9, 0, 5, 16, 0, 1980, 2619},
    {"H100", 9, 0, 5, 16, 0, 0, 0},
    {"H800", 9, 0, 5, 16, 0, 0, 0},
    {"H20", 9, 0, 5, 16, 0, 0, 0},
    {"L40", 8, 9, 4, 16, 0, 0, 0},
    {"L20", 8, 9, 4, 16, 0, 0, 0},
    {"L4", 8, 9, 4, 16, 0, 0, 0},
    {"Ada Generation", 8, 9, 4, 16, 0, 0, 0},
    {"A100", 8, 0, 4, 16, 0, 0, 0},
    {"A800", 8, 0, 4, 16, 0, 0, 0},
    {"A30", 8, 0, 4, 16, 0, 0, 0},
    {"A40", 8, 6, 4, 16, 0, 0, 0},
    {"A10", 8, 6, 4, 16, 0, 0, 0},
    {"A16", 8, 6, 4, 16, 0, 0, 0},
    {"A2", 8, 6, 4, 8, 0, 0, 0},
    {"RTX PRO", 12, 0, 5, 16, 0, 0, 0},
    {"RTX 50", 12, 0, 5, 16, 0, 0, 0},
    {"RTX 40", 8, 9, 4, 16, 0, 0, 0},
    {"RTX 30", 8, 6, 4, 16, 0, 0, 0},
    {"RTX 20", 7, 5, 3, 16, 0, 0, 0},
    {"RTX A", 8, 6, 4, 16, 0, 0, 0},
    {"Quadro RTX", 7, 5, 3, 16, 0, 0, 0},
    {"T4", 7, 5, 3, 16, 0, 0, 0},
    {"V100", 7, 0, 3, 16, 0, 0, 0},
    {"Tendril Test Device", 9, 0, 0, 0, 0, 0, 0},
};
constexpr Model kUnknown = {};

bool alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

const Model& model_of(const std::string& name) {
  for (const Model& model : kModels) {
    size_t at = name.find(model.word);
    if (at != std::string::npos && (at == 0 || !alphanumeric(name[at - 1]))) return model;
  }
  return kUnknown;
}

}  // namespace tendril::client::nvml
