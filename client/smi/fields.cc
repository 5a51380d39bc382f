// SPDX-License-Identifier: Apache-2.0
// See fields.h.
#include "client/smi/fields.h"

#include <time.h>

#include <cstring>

#include "base/text.h"

namespace tendril::client::smi {
namespace {

using base::format;

template <auto Function>
nvmlReturn_t number(const Gpu& gpu, std::string* value) {
  unsigned found = 0;
  const nvmlReturn_t result = Function(gpu.handle, &found);
  return done(result, value, format("%u", found));
}

template <auto Function>
nvmlReturn_t text(const Gpu& gpu, std::string* value) {
  char found[128] = {};
  const nvmlReturn_t result = Function(gpu.handle, found, sizeof found);
  return done(result, value, found);
}

template <auto Function>
nvmlReturn_t state(const Gpu& gpu, std::string* value) {
  nvmlEnableState_t found = NVML_FEATURE_DISABLED;
  const nvmlReturn_t result = Function(gpu.handle, &found);
  return done(result, value, found == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled");
}

template <auto Function>
nvmlReturn_t watts(const Gpu& gpu, std::string* value) {
  unsigned found_mw = 0;
  const nvmlReturn_t result = Function(gpu.handle, &found_mw);
  return done(result, value, format("%u.%02u", found_mw / 1000, found_mw % 1000 / 10));
}

template <auto Function>
nvmlReturn_t reasons(const Gpu& gpu, std::string* value) {
  unsigned long long found = 0;
  const nvmlReturn_t result = Function(gpu.handle, &found);
  return done(result, value, format("0x%016llX", found));
}

template <unsigned long long Bit>
nvmlReturn_t is_active(const Gpu& gpu, std::string* value) {
  unsigned long long found = 0;
  const nvmlReturn_t result = nvmlDeviceGetCurrentClocksEventReasons(gpu.handle, &found);
  return done(result, value, (found & Bit) != 0 ? "Active" : "Not Active");
}

template <nvmlClockType_t Type, bool Highest>
nvmlReturn_t clock(const Gpu& gpu, std::string* value) {
  unsigned found_mhz = 0;
  const nvmlReturn_t result = Highest ? nvmlDeviceGetMaxClockInfo(gpu.handle, Type, &found_mhz)
                                      : nvmlDeviceGetClockInfo(gpu.handle, Type, &found_mhz);
  return done(result, value, format("%u", found_mhz));
}

enum class Memory { kTotal, kReserved, kUsed, kFree };
template <Memory Part>
nvmlReturn_t memory(const Gpu& gpu, std::string* value) {
  nvmlMemory_v2_t found = {};
  found.version = nvmlMemory_v2;
  const nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(gpu.handle, &found);
  const unsigned long long bytes = Part == Memory::kTotal      ? found.total
                                   : Part == Memory::kReserved ? found.reserved
                                   : Part == Memory::kUsed     ? found.used
                                                               : found.free;
  return done(result, value, format("%llu", bytes / kMiB));
}

enum class Pci { kDomain, kBus, kDevice, kBase, kSub };
template <Pci Part>
nvmlReturn_t pci(const Gpu& gpu, std::string* value) {
  nvmlPciInfoExt_t found = {};
  found.version = nvmlPciInfoExt_v1;
  const nvmlReturn_t result = nvmlDeviceGetPciInfoExt(gpu.handle, &found);
  switch (Part) {
    case Pci::kDomain:
      return done(result, value, format("0x%04X", found.domain));
    case Pci::kBus:
      return done(result, value, format("0x%02X", found.bus));
    case Pci::kDevice:
      return done(result, value, format("0x%02X", found.device));
    case Pci::kBase:
      return done(result, value, format("0x%X", found.baseClass));
    case Pci::kSub:
      return done(result, value, format("0x%X", found.subClass));
  }
  return NVML_ERROR_UNKNOWN;
}

nvmlReturn_t bus_id(const Gpu& gpu, std::string* value) {
  nvmlPciInfo_t found = {};
  const nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(gpu.handle, &found);
  return done(result, value, found.busId);
}

nvmlReturn_t timestamp(const Gpu&, std::string* value) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local = {};
  localtime_r(&now.tv_sec, &local);
  char text[64];
  strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S", &local);
  return done(NVML_SUCCESS, value, format("%s.%03ld", text, now.tv_nsec / 1'000'000));
}

nvmlReturn_t driver(const Gpu&, std::string* value) {
  return done(NVML_SUCCESS, value, driver_version());
}

nvmlReturn_t count(const Gpu&, std::string* value) {
  unsigned found = 0;
  const nvmlReturn_t result = nvmlDeviceGetCount_v2(&found);
  return done(result, value, format("%u", found));
}

nvmlReturn_t index(const Gpu& gpu, std::string* value) {
  return done(NVML_SUCCESS, value, format("%u", gpu.index));
}

nvmlReturn_t deprecated(const Gpu&, std::string*) { return NVML_ERROR_DEPRECATED; }

nvmlReturn_t display(const Gpu& gpu, std::string* value) {
  nvmlEnableState_t found = NVML_FEATURE_DISABLED;
  const nvmlReturn_t result = nvmlDeviceGetDisplayMode(gpu.handle, &found);
  return done(result, value, found == NVML_FEATURE_ENABLED ? "Yes" : "No");
}

nvmlReturn_t addressing(const Gpu& gpu, std::string* value) {
  nvmlDeviceAddressingMode_t found = {};
  found.version = nvmlDeviceAddressingMode_v1;
  const nvmlReturn_t result = nvmlDeviceGetAddressingMode(gpu.handle, &found);
  const char* const name = found.value == NVML_DEVICE_ADDRESSING_MODE_HMM   ? "HMM"
                           : found.value == NVML_DEVICE_ADDRESSING_MODE_ATS ? "ATS"
                                                                            : "None";
  return done(result, value, name);
}

nvmlReturn_t pstate(const Gpu& gpu, std::string* value) {
  nvmlPstates_t found = NVML_PSTATE_UNKNOWN;
  const nvmlReturn_t result = nvmlDeviceGetPerformanceState(gpu.handle, &found);
  return done(result, value, format("P%d", static_cast<int>(found)));
}

nvmlReturn_t compute_mode(const Gpu& gpu, std::string* value) {
  constexpr const char* kNames[] = {"Default", "Exclusive_Thread", "Prohibited",
                                    "Exclusive_Process"};
  nvmlComputeMode_t found = NVML_COMPUTEMODE_DEFAULT;
  const nvmlReturn_t result = nvmlDeviceGetComputeMode(gpu.handle, &found);
  const size_t at = static_cast<size_t>(found);
  return done(result, value, at < sizeof kNames / sizeof kNames[0] ? kNames[at] : "Unknown");
}

nvmlReturn_t capability(const Gpu& gpu, std::string* value) {
  int major = 0, minor = 0;
  const nvmlReturn_t result = nvmlDeviceGetCudaComputeCapability(gpu.handle, &major, &minor);
  return done(result, value, format("%d.%d", major, minor));
}

nvmlReturn_t utilization(const Gpu& gpu, std::string* value) {
  nvmlUtilization_t found = {};
  const nvmlReturn_t result = nvmlDeviceGetUtilizationRates(gpu.handle, &found);
  return done(result, value, format("%u", found.gpu));
}

nvmlReturn_t temperature(const Gpu& gpu, std::string* value) {
  unsigned found_c = 0;
  const nvmlReturn_t result = nvmlDeviceGetTemperature(gpu.handle, NVML_TEMPERATURE_GPU, &found_c);
  return done(result, value, format("%u", found_c));
}

template <bool Current>
nvmlReturn_t ecc(const Gpu& gpu, std::string* value) {
  nvmlEnableState_t now = NVML_FEATURE_DISABLED, later = NVML_FEATURE_DISABLED;
  const nvmlReturn_t result = nvmlDeviceGetEccMode(gpu.handle, &now, &later);
  return done(result, value,
              (Current ? now : later) == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled");
}

template <bool Current>
nvmlReturn_t mig(const Gpu& gpu, std::string* value) {
  unsigned now = 0, later = 0;
  const nvmlReturn_t result = nvmlDeviceGetMigMode(gpu.handle, &now, &later);
  return done(result, value, (Current ? now : later) != 0 ? "Enabled" : "Disabled");
}

}  // namespace

// In the order of the vendor's --help-query-gpu (recorded/query-gpu.txt).
const Field kFields[] = {
    {"timestamp", "", "", timestamp},
    {"driver_version", "", "", driver},
    {"vgpu_driver_capability.heterogenous_multivGPU", "", "", nullptr},
    {"count", "", "", count},
    {"name", "gpu_name", "", text<nvmlDeviceGetName>},
    {"serial", "gpu_serial", "", text<nvmlDeviceGetSerial>},
    {"uuid", "gpu_uuid", "", text<nvmlDeviceGetUUID>},
    {"pci.bus_id", "gpu_bus_id", "", bus_id},
    {"pci.domain", "", "", pci<Pci::kDomain>},
    {"pci.bus", "", "", pci<Pci::kBus>},
    {"pci.device", "", "", pci<Pci::kDevice>},
    {"pci.baseClass", "", "", pci<Pci::kBase>},
    {"pci.subClass", "", "", pci<Pci::kSub>},
    {"pci.device_id", "", "", nullptr},
    {"pci.sub_device_id", "", "", nullptr},
    {"vgpu_device_capability.fractional_multiVgpu", "", "", nullptr},
    {"vgpu_device_capability.heterogeneous_timeSlice_profile", "", "", nullptr},
    {"vgpu_device_capability.heterogeneous_timeSlice_sizes", "", "", nullptr},
    {"vgpu_device_capability.homogeneous_placements", "", "", nullptr},
    {"vgpu_device_capability.mig_timeSlicing", "", "", nullptr},
    {"vgpu_device_capability.mig_timeSlicing_mode", "", "", nullptr},
    {"pcie.link.gen.current", "", "", number<nvmlDeviceGetCurrPcieLinkGeneration>},
    {"pcie.link.gen.gpucurrent", "", "", number<nvmlDeviceGetCurrPcieLinkGeneration>},
    {"pcie.link.gen.max", "", "", number<nvmlDeviceGetMaxPcieLinkGeneration>},
    {"pcie.link.gen.gpumax", "", "", number<nvmlDeviceGetGpuMaxPcieLinkGeneration>},
    {"pcie.link.gen.hostmax", "", "", nullptr},
    {"pcie.link.width.current", "", "", number<nvmlDeviceGetCurrPcieLinkWidth>},
    {"pcie.link.width.max", "", "", number<nvmlDeviceGetMaxPcieLinkWidth>},
    {"index", "", "", index},
    {"display_mode", "", "", deprecated},
    {"display_attached", "", "", display},
    {"display_active", "", "", state<nvmlDeviceGetDisplayActive>},
    {"persistence_mode", "", "", state<nvmlDeviceGetPersistenceMode>},
    {"addressing_mode", "", "", addressing},
    {"accounting.mode", "", "", state<nvmlDeviceGetAccountingMode>},
    {"accounting.buffer_size", "", "", nullptr},
    {"driver_model.current", "", "", nullptr},
    {"driver_model.pending", "", "", nullptr},
    {"vbios_version", "", "", text<nvmlDeviceGetVbiosVersion>},
    {"inforom.img", "inforom.image", "", nullptr},
    {"inforom.oem", "", "", nullptr},
    {"inforom.ecc", "", "", nullptr},
    {"inforom.pwr", "inforom.power", "", nullptr},
    {"inforom.checksum_validation", "", "", nullptr},
    {"gpu_recovery_action", "", "", nullptr},
    {"gom.current", "gpu_operation_mode.current", "", nullptr},
    {"gom.pending", "gpu_operation_mode.pending", "", nullptr},
    {"fan.speed", "", "%", number<nvmlDeviceGetFanSpeed>},
    {"pstate", "", "", pstate},
    {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", "",
     reasons<nvmlDeviceGetSupportedClocksEventReasons>},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", "",
     reasons<nvmlDeviceGetCurrentClocksEventReasons>},
    {"clocks_event_reasons.gpu_idle", "clocks_throttle_reasons.gpu_idle", "", is_active<0x1>},
    {"clocks_event_reasons.applications_clocks_setting",
     "clocks_throttle_reasons.applications_clocks_setting", "", is_active<0x2>},
    {"clocks_event_reasons.sw_power_cap", "clocks_throttle_reasons.sw_power_cap", "",
     is_active<0x4>},
    {"clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown", "", is_active<0x8>},
    {"clocks_event_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown", "",
     is_active<0x40>},
    {"clocks_event_reasons.hw_power_brake_slowdown",
     "clocks_throttle_reasons.hw_power_brake_slowdown", "", is_active<0x80>},
    {"clocks_event_reasons.sw_thermal_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown", "",
     is_active<0x20>},
    {"clocks_event_reasons.sync_boost", "clocks_throttle_reasons.sync_boost", "", is_active<0x10>},
    {"clocks_event_reasons_counters.sw_power_cap", "", "us", nullptr},
    {"clocks_event_reasons_counters.sync_boost", "", "us", nullptr},
    {"clocks_event_reasons_counters.sw_thermal_slowdown", "", "us", nullptr},
    {"clocks_event_reasons_counters.hw_thermal_slowdown", "", "us", nullptr},
    {"clocks_event_reasons_counters.hw_power_brake_slowdown", "", "us", nullptr},
    {"memory.total", "", "MiB", memory<Memory::kTotal>},
    {"memory.reserved", "", "MiB", memory<Memory::kReserved>},
    {"memory.used", "", "MiB", memory<Memory::kUsed>},
    {"memory.free", "", "MiB", memory<Memory::kFree>},
    {"compute_mode", "", "", compute_mode},
    {"compute_cap", "", "", capability},
    {"utilization.gpu", "", "%", utilization},
    {"utilization.memory", "", "%", nullptr},
    {"utilization.encoder", "", "%", nullptr},
    {"utilization.decoder", "", "%", nullptr},
    {"utilization.jpeg", "", "%", nullptr},
    {"utilization.ofa", "", "%", nullptr},
    {"encoder.stats.sessionCount", "", "", nullptr},
    {"encoder.stats.averageFps", "", "", nullptr},
    {"encoder.stats.averageLatency", "", "", nullptr},
    {"dramEncryption.mode.current", "", "", nullptr},
    {"dramEncryption.mode.pending", "", "", nullptr},
    {"ecc.mode.current", "", "", ecc<true>},
    {"ecc.mode.pending", "", "", ecc<false>},
    {"ecc.errors.corrected.volatile.device_memory", "", "", nullptr},
    {"ecc.errors.corrected.volatile.dram", "", "", nullptr},
    {"ecc.errors.corrected.volatile.register_file", "", "", nullptr},
    {"ecc.errors.corrected.volatile.l1_cache", "", "", nullptr},
    {"ecc.errors.corrected.volatile.l2_cache", "", "", nullptr},
    {"ecc.errors.corrected.volatile.texture_memory", "", "", nullptr},
    {"ecc.errors.corrected.volatile.cbu", "", "", nullptr},
    {"ecc.errors.corrected.volatile.sram", "", "", nullptr},
    {"ecc.errors.corrected.volatile.total", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.device_memory", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.dram", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.register_file", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.l1_cache", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.l2_cache", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.texture_memory", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.cbu", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.sram", "", "", nullptr},
    {"ecc.errors.corrected.aggregate.total", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.device_memory", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.dram", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.register_file", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.l1_cache", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.l2_cache", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.texture_memory", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.cbu", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.sram", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.total", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.device_memory", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.dram", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.register_file", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.l1_cache", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.l2_cache", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.texture_memory", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.cbu", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.total", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.sram.parity", "", "", nullptr},
    {"ecc.errors.uncorrected.volatile.sram.secded", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.parity", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.secded", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.l2", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.sm", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.mcu", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.pcie", "", "", nullptr},
    {"ecc.errors.uncorrected.aggregate.sram.other", "", "", nullptr},
    {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", "", nullptr},
    {"retired_pages.double_bit.count", "retired_pages.dbe", "", nullptr},
    {"retired_pages.pending", "", "", nullptr},
    {"remapped_rows.correctable", "remapped_rows.sbe", "", nullptr},
    {"remapped_rows.correctable_inactive", "", "", nullptr},
    {"remapped_rows.uncorrectable", "remapped_rows.dbe", "", nullptr},
    {"remapped_rows.uncorrectable_inactive", "", "", nullptr},
    {"remapped_rows.pending", "", "", nullptr},
    {"remapped_rows.failure", "", "", nullptr},
    {"remapped_rows.histogram.max", "", "", nullptr},
    {"remapped_rows.histogram.high", "", "", nullptr},
    {"remapped_rows.histogram.partial", "", "", nullptr},
    {"remapped_rows.histogram.low", "", "", nullptr},
    {"remapped_rows.histogram.none", "", "", nullptr},
    {"temperature.gpu", "", "", temperature},
    {"temperature.gpu.tlimit", "", "", nullptr},
    {"temperature.memory", "", "", nullptr},
    {"power.management", "", "", nullptr},
    {"power.draw", "", "W", watts<nvmlDeviceGetPowerUsage>},
    {"power.draw.average", "gpu.power.draw.average", "W", watts<nvmlDeviceGetPowerUsage>},
    {"power.draw.instant", "gpu.power.draw.instant", "W", watts<nvmlDeviceGetPowerUsage>},
    {"power.limit", "gpu.power.requested_limit", "W", watts<nvmlDeviceGetPowerManagementLimit>},
    {"enforced.power.limit", "gpu.power.current_limit", "W",
     watts<nvmlDeviceGetEnforcedPowerLimit>},
    {"power.default_limit", "gpu.power.default_limit", "W",
     watts<nvmlDeviceGetPowerManagementDefaultLimit>},
    {"power.min_limit", "gpu.power.min_limit", "W", nullptr},
    {"power.max_limit", "gpu.power.max_limit", "W", nullptr},
    {"module.power.draw.average", "", "W", nullptr},
    {"module.power.draw.instant", "", "W", nullptr},
    {"module.power.limit", "module.power.requested_limit", "W", nullptr},
    {"module.enforced.power.limit", "module.power.current_limit", "W", nullptr},
    {"module.power.default_limit", "", "W", nullptr},
    {"module.power.min_limit", "", "W", nullptr},
    {"module.power.max_limit", "", "W", nullptr},
    {"power_smoothing.delayed_power_smoothing_supported", "", "", nullptr},
    {"power_smoothing.primary_power_floor", "", "W", nullptr},
    {"power_smoothing.secondary_power_floor", "", "W", nullptr},
    {"power_smoothing.min_primary_floor_activation_offset", "", "W", nullptr},
    {"power_smoothing.min_primary_floor_activation_point", "", "W", nullptr},
    {"power_smoothing.window_multiplier", "", "ms", nullptr},
    {"power_smoothing.curr_profile.secondary_power_floor", "", "W", nullptr},
    {"power_smoothing.curr_profile.primary_floor_act_window_multiplier", "", "", nullptr},
    {"power_smoothing.curr_profile.primary_floor_tar_window_multiplier", "", "", nullptr},
    {"power_smoothing.curr_profile.primary_floor_act_offset", "", "W", nullptr},
    {"power_smoothing.admin_override.secondary_power_floor", "", "W", nullptr},
    {"power_smoothing.admin_override.primary_floor_act_window_multiplier", "", "", nullptr},
    {"power_smoothing.admin_override.primary_floor_tar_window_multiplier", "", "", nullptr},
    {"power_smoothing.admin_override.primary_floor_act_offset", "", "W", nullptr},
    {"clocks.current.graphics", "clocks.gr", "MHz", clock<NVML_CLOCK_GRAPHICS, false>},
    {"clocks.current.sm", "clocks.sm", "MHz", clock<NVML_CLOCK_SM, false>},
    {"clocks.current.memory", "clocks.mem", "MHz", clock<NVML_CLOCK_MEM, false>},
    {"clocks.current.video", "clocks.video", "MHz", clock<NVML_CLOCK_VIDEO, false>},
    {"clocks.applications.graphics", "clocks.applications.gr", "MHz", nullptr},
    {"clocks.applications.memory", "clocks.applications.mem", "MHz", nullptr},
    {"clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz", nullptr},
    {"clocks.default_applications.memory", "clocks.default_applications.mem", "MHz", nullptr},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", clock<NVML_CLOCK_GRAPHICS, true>},
    {"clocks.max.sm", "", "MHz", clock<NVML_CLOCK_SM, true>},
    {"clocks.max.memory", "clocks.max.mem", "MHz", clock<NVML_CLOCK_MEM, true>},
    {"mig.mode.current", "", "", mig<true>},
    {"mig.mode.pending", "", "", mig<false>},
    {"gsp.mode.current", "", "", nullptr},
    {"gsp.mode.default", "", "", nullptr},
    {"c2c.mode", "", "", nullptr},
    {"protected_memory.total", "", "MiB", nullptr},
    {"protected_memory.used", "", "MiB", nullptr},
    {"protected_memory.free", "", "MiB", nullptr},
    {"fabric.state", "", "", nullptr},
    {"fabric.status", "", "", nullptr},
    {"fabric.cliqueId", "", "", nullptr},
    {"fabric.clusterUuid", "", "", nullptr},
    {"fabric.health.summary", "", "", nullptr},
    {"fabric.health.bandwidth", "", "", nullptr},
    {"fabric.health.route_recovery_in_progress", "", "", nullptr},
    {"fabric.health.route_unhealthy", "", "", nullptr},
    {"fabric.health.access_timeout_recovery", "", "", nullptr},
    {"fabric.health.incorrect_configuration", "", "", nullptr},
    {"fabric.health.partition_assigned", "", "", nullptr},
    {"platform.chassis_serial_number", "", "", nullptr},
    {"platform.slot_number", "", "", nullptr},
    {"platform.tray_index", "", "", nullptr},
    {"platform.host_id", "", "", nullptr},
    {"platform.peer_type", "", "", nullptr},
    {"platform.module_id", "", "", nullptr},
    {"platform.gpu_fabric_guid", "", "", nullptr},
    {"hostname", "", "", nullptr},
};
const size_t kFieldCount = sizeof kFields / sizeof kFields[0];

const Field* find_field(const std::string& name) {
  for (const Field& field : kFields)
    if (name == field.name || (*field.alias != 0 && name == field.alias)) return &field;
  return nullptr;
}

const char* reason(nvmlReturn_t result) {
  switch (result) {
    case NVML_ERROR_NOT_SUPPORTED:
      return "N/A";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    case NVML_ERROR_DEPRECATED:
      return "Requested functionality has been deprecated";
    default:
      return "Unknown Error";
  }
}

Value value_of(const Field& field, const Gpu& gpu, bool with_unit) {
  Value value;
  const nvmlReturn_t result =
      field.read == nullptr ? NVML_ERROR_NOT_SUPPORTED : field.read(gpu, &value.text);
  value.known = result == NVML_SUCCESS;
  if (!value.known) value.text = reason(result);
  if (value.known && with_unit && *field.unit != 0) value.text += std::string(" ") + field.unit;
  return value;
}

std::string driver_version() {
  char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
  return nvmlSystemGetDriverVersion(text, sizeof text) == NVML_SUCCESS ? text : "N/A";
}

std::string cuda_version() {
  int version = 0;
  if (nvmlSystemGetCudaDriverVersion_v2(&version) != NVML_SUCCESS) return "N/A";
  return format("%d.%d", version / 1000, version % 1000 / 10);
}

std::string timestamp_of_log() {
  const time_t now = time(nullptr);
  tm local = {};
  localtime_r(&now, &local);
  char text[64];
  strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &local);
  return text;
}

}  // namespace tendril::client::smi
