// SPDX-License-Identifier: Apache-2.0
// The library itself: start and end, error texts, versions, names of processes, and other units of
// a host (none).
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "api/cuda_abi.gen.h"
#include "base/fd.h"
#include "base/text.h"
#include "client/nvml/answer.h"

namespace nvml = tendril::client::nvml;

namespace {

struct ErrorText {
  nvmlReturn_t code;
  const char* text;
};
constexpr ErrorText kErrorTexts[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "Blocked by the operating system"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, "In use by another client"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "ECC is enabled, which vGPU does not support"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency Not Supported"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument Version Mismatch"},
    {NVML_ERROR_DEPRECATED, "Deprecated"},
    {NVML_ERROR_NOT_READY, "Not Ready"},
    {NVML_ERROR_GPU_NOT_FOUND, "GPU Not Found"},
    {NVML_ERROR_INVALID_STATE, "Invalid State"},
    {NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "Reset Type Not Supported"},
};

// The driver branch that first offered a CUDA version. Used if the name of a server's driver
// library does not have the version.
unsigned branch_of(uint32_t cuda_version) {
  struct {
    uint32_t cuda;
    unsigned branch;
  } constexpr kBranches[] = {{13010, 590}, {13000, 580}, {12090, 575}, {12080, 570},
                             {12060, 560}, {12050, 555}, {12040, 550}, {12030, 545},
                             {12020, 535}, {12010, 530}, {12000, 525}};
  for (const auto& row : kBranches) {
    if (cuda_version >= row.cuda) return row.branch;
  }
  return 520;
}

// "580.159.04" of ".../libcuda.so.580.159.04", or the branch alone.
std::string driver_version() {
  nvml::DriverFacts facts = nvml::driver_facts();
  size_t at = facts.library.rfind(".so.");
  std::string version = at == std::string::npos ? "" : facts.library.substr(at + 4);
  bool good = version.find('.') != std::string::npos &&
              version.find_first_not_of("0123456789.") == std::string::npos;
  return good ? version : tendril::base::format("%u.00", branch_of(facts.cuda_version));
}

nvmlReturn_t if_started(const void* needed) {
  if (!nvml::is_started()) return NVML_ERROR_UNINITIALIZED;
  return needed == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t none_of(unsigned int* count) {
  nvmlReturn_t check = if_started(count);
  if (check == NVML_SUCCESS) *count = 0;
  return check;
}

nvmlReturn_t cuda_version(int* version) {
  uint32_t known = nvml::driver_facts().cuda_version;
  *version = static_cast<int>(known == 0 || known > CUDA_VERSION
                                  ? CUDA_VERSION
                                  : known);  // client/cuda caps it at the same value
  return NVML_SUCCESS;
}

}  // namespace

TENDRIL_NVML nvmlReturn_t nvmlInit() { return nvml::start(); }
TENDRIL_NVML nvmlReturn_t nvmlInit_v2() { return nvml::start(); }
TENDRIL_NVML nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return nvml::start(); }
TENDRIL_NVML nvmlReturn_t nvmlShutdown() { return nvml::stop(); }

TENDRIL_NVML const char* nvmlErrorString(nvmlReturn_t result) {
  for (const ErrorText& row : kErrorTexts) {
    if (row.code == result) return row.text;
  }
  return "Unknown Error";
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  nvmlReturn_t check = if_started(version);
  return check != NVML_SUCCESS ? check : nvml::copy_text(driver_version(), version, length);
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  nvmlReturn_t check = if_started(version);
  return check != NVML_SUCCESS
             ? check
             : nvml::copy_text(NVML_API_VERSION_STR "." + driver_version(), version, length);
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* branchInfo,
                                                    unsigned int length) {
  nvmlReturn_t check = if_started(branchInfo);
  if (check != NVML_SUCCESS) return check;
  if (branchInfo->version != nvmlSystemDriverBranchInfo_v1)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::string version = driver_version();
  std::string branch = "r" + version.substr(0, version.find('.')) + "_00";
  return nvml::copy_text(branch, branchInfo->branch,
                         length < sizeof branchInfo->branch ? length : sizeof branchInfo->branch);
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  // Answers before nvmlInit too, but then only for this library.
  return cudaDriverVersion == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                                      : cuda_version(cudaDriverVersion);
}
TENDRIL_NVML nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  return nvmlSystemGetCudaDriverVersion(cudaDriverVersion);
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name,
                                                   unsigned int length) {
  nvmlReturn_t check = if_started(name);
  if (check != NVML_SUCCESS) return check;
  tendril::base::Fd file(
      open(tendril::base::format("/proc/%u/cmdline", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return NVML_ERROR_NOT_FOUND;
  char text[1024];
  ssize_t bytes = read(file.get(), text, sizeof text - 1);
  if (bytes < 0) return NVML_ERROR_NO_PERMISSION;
  text[bytes] = 0;  // NULs separate the arguments, so the text ends after the first
  // A process's name that is too long is cut. Other texts are refused.
  if (length == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
  snprintf(name, length, "%s", text);
  return NVML_SUCCESS;
}

TENDRIL_NVML nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* hwbcCount,
                                                  nvmlHwbcEntry_t* hwbcEntries) {
  return none_of(hwbcCount);
}
TENDRIL_NVML nvmlReturn_t nvmlUnitGetCount(unsigned int* unitCount) { return none_of(unitCount); }
TENDRIL_NVML nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  return none_of(deviceCount);
}
