// SPDX-License-Identifier: Apache-2.0
// Platforms and devices. Each platform of a server is one of the program's, with the devices that
// the program has slices of. What the server says of them passes as bytes, except what is different
// here: handles, extensions whose functions are not forwarded, and abilities that need one machine.
#include <string.h>

#include <algorithm>

#include "api/opencl_entries.gen.h"
#include "client/opencl/entry.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::Subject;

constexpr char kSuffix[] = "TENDRIL";  // of functions of extensions, for loaders

// Extensions that need functions or objects which are not forwarded, by how their names begin.
constexpr const char* kLeftOut[] = {"cl_khr_gl_",
                                    "cl_khr_egl_",
                                    "cl_khr_d3d",
                                    "cl_khr_dx9",
                                    "cl_khr_command_",
                                    "cl_khr_semaphore",
                                    "cl_khr_external_",
                                    "cl_khr_create_",
                                    "cl_khr_suggested_",
                                    "cl_khr_terminate_",
                                    "cl_khr_mipmap_",
                                    "cl_khr_spirv_no",
                                    "cl_khr_device_enq",
                                    "cl_khr_pipe",
                                    "cl_ext_device_fission",
                                    "cl_ext_migrate",
                                    "cl_intel_unified",
                                    "cl_intel_mem_",
                                    "cl_intel_create_",
                                    "cl_intel_va_",
                                    "cl_intel_sharing",
                                    "cl_arm_shared_",
                                    "cl_arm_import_",
                                    "cl_pocl_",
                                    "cl_exp_",
                                    "cl_img_",
                                    "cl_qcom_",
                                    "cl_apple_",
                                    "cl_APPLE_",
                                    "cl_nv_",
                                    "cl_amd_"};

// It needs queues on devices.
constexpr char kFeatureLeftOut[] = "__opencl_c_device_enqueue";

bool is_left_out(const std::string& extension) {
  if (extension == kFeatureLeftOut) return true;
  for (const char* head : kLeftOut)
    if (extension.rfind(head, 0) == 0) return true;
  return false;
}

// A list of words without those that are left out, and with `more`.
std::string forwarded_extensions(const std::string& all, const char* more) {
  std::string kept, word;
  bool has_more = *more == 0;
  for (const char letter : all + " ") {
    if (letter != ' ' && letter != 0) {
      word.push_back(letter);
      continue;
    }
    if (!word.empty() && !is_left_out(word)) kept += (kept.empty() ? "" : " ") + word;
    has_more = has_more || word == more;
    word.clear();
  }
  if (!has_more) kept += (kept.empty() ? "" : " ") + std::string(more);
  return kept;
}

cl_int extensions(const Question& question, uint32_t parameter, const char* more,
                  const Wanted& answer) {
  std::string all;
  const cl_int result = ask_server(question, parameter, &all);
  return result == CL_SUCCESS ? answer.text(forwarded_extensions(all, more)) : result;
}

// The same as records with versions; also the features of a language.
cl_int versioned_names(const Question& question, uint32_t parameter, bool of_platform,
                       const Wanted& answer) {
  std::string all;
  const cl_int result = ask_server(question, parameter, &all);
  if (result != CL_SUCCESS) return result;
  std::vector<cl_name_version> kept;
  bool has_loader = !of_platform;
  for (size_t at = 0; at + sizeof(cl_name_version) <= all.size(); at += sizeof(cl_name_version)) {
    cl_name_version each;
    memcpy(&each, all.data() + at, sizeof each);
    each.name[sizeof each.name - 1] = 0;
    if (is_left_out(each.name)) continue;
    has_loader = has_loader || strcmp(each.name, "cl_khr_icd") == 0;
    kept.push_back(each);
  }
  if (!has_loader) {
    cl_name_version loader = {1u << 22, {}};  // 1.0.0
    memcpy(loader.name, "cl_khr_icd", sizeof "cl_khr_icd");
    kept.push_back(loader);
  }
  return answer.list(kept);
}

// Finer grains need one memory for both machines.
cl_int shared_abilities(const Question& question, const Wanted& answer) {
  cl_device_svm_capabilities all = 0;
  const cl_int result =
      ask_server(question, CL_DEVICE_SVM_CAPABILITIES, {sizeof all, &all, nullptr});
  return result == CL_SUCCESS ? answer.one(all & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) : result;
}

Platform* find(cl_platform_id platform) {
  const auto* shown = reinterpret_cast<const Handle*>(platform);
  Process* all = process();
  if (all == nullptr) return nullptr;
  for (Platform* each : all->platforms)
    if (&each->shown == shown) return each;
  return nullptr;
}

// What a device cannot do because it is elsewhere, or because this library does not forward it. The
// lengths are those that OpenCL says. False: the server's answer holds.
bool answered_here(const Device& device, cl_device_info parameter, const Wanted& answer,
                   cl_int* result) {
  switch (parameter) {
    case CL_DEVICE_PLATFORM:
      *result = answer.one(reinterpret_cast<cl_platform_id>(&device.platform->shown));
      return true;
    case CL_DEVICE_PARENT_DEVICE:
      *result = answer.one(handle_of<cl_device_id>(device.parent));
      return true;
    case CL_DEVICE_REFERENCE_COUNT:
      *result = answer.one(cl_uint{device.references.load()});
      return true;
    case CL_DEVICE_EXECUTION_CAPABILITIES:
      *result = answer.one(cl_device_exec_capabilities{CL_EXEC_KERNEL});
      return true;
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
      *result = answer.one(cl_bool{CL_FALSE});
      return true;
    case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES:
    case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES:
      *result = answer.one(cl_bitfield{0});
      return true;
    case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
    case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE:
    case CL_DEVICE_MAX_ON_DEVICE_QUEUES:
    case CL_DEVICE_MAX_ON_DEVICE_EVENTS:
      *result = answer.one(cl_uint{0});
      return true;
    case CL_DEVICE_PARTITION_TYPE:
      if (device.parent == nullptr) return false;
      *result = answer.list(device.partition);
      return true;
    default:
      return false;
  }
}

template <typename T>
cl_int list_of(const std::vector<T>& all, cl_uint room, T* into, cl_uint* count, cl_int none) {
  if ((into == nullptr && count == nullptr) || (into != nullptr && room == 0))
    return CL_INVALID_VALUE;
  if (count != nullptr) *count = static_cast<cl_uint>(all.size());
  if (all.empty()) return none;
  if (into != nullptr) std::copy_n(all.data(), std::min<size_t>(room, all.size()), into);
  return CL_SUCCESS;
}

cl_int list_platforms(cl_uint room, cl_platform_id* platforms, cl_uint* count, cl_int none) {
  std::vector<cl_platform_id> all;
  if (attached())
    for (Platform* each : process()->platforms)
      all.push_back(reinterpret_cast<cl_platform_id>(&each->shown));
  return list_of(all, room, platforms, count, none);
}

void* address_of(const char* name) {
  if (name == nullptr) return nullptr;
  for (const EntryInfo& entry : kEntries)
    if (strcmp(entry.name, name) == 0)
      return entry.answer != Answer::kRefuse ? entry.address : nullptr;
  return nullptr;
}

}  // namespace

cl_int clGetPlatformIDs(cl_uint num_entries, cl_platform_id* platforms, cl_uint* num_platforms) {
  return list_platforms(num_entries, platforms, num_platforms, CL_SUCCESS);
}

cl_int clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id* platforms,
                              cl_uint* num_platforms) {
  return list_platforms(num_entries, platforms, num_platforms, CL_PLATFORM_NOT_FOUND_KHR);
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name,
                         size_t param_value_size, void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Platform* found = find(platform);
  if (found == nullptr) return CL_INVALID_PLATFORM;
  const Question question = {found->session, Subject::kPlatform, found->number};
  if (param_name == CL_PLATFORM_ICD_SUFFIX_KHR) return answer.text(kSuffix);
  if (param_name == CL_PLATFORM_EXTENSIONS)
    return extensions(question, param_name, "cl_khr_icd", answer);
  if (param_name == CL_PLATFORM_EXTENSIONS_WITH_VERSION)
    return versioned_names(question, param_name, true, answer);
  return ask_server(question, param_name, answer);
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries,
                      cl_device_id* devices, cl_uint* num_devices) {
  constexpr cl_device_type kKnown = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU |
                                    CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR |
                                    CL_DEVICE_TYPE_CUSTOM;
  if (!attached()) return CL_INVALID_PLATFORM;
  const Platform* found = platform != nullptr ? find(platform) : process()->platforms.front();
  if (found == nullptr) return CL_INVALID_PLATFORM;
  const bool any = device_type == CL_DEVICE_TYPE_ALL;
  if (!any && ((device_type & kKnown) == 0 || (device_type & ~kKnown) != 0))
    return CL_INVALID_DEVICE_TYPE;
  std::vector<cl_device_id> fitting;
  for (Device* device : found->devices) {
    const bool is_default =
        (device_type & CL_DEVICE_TYPE_DEFAULT) != 0 && device == found->devices.front();
    const bool fits = any ? true : is_default || (device->type & device_type & kKnown) != 0;
    if (fits) fitting.push_back(handle_of<cl_device_id>(device));
  }
  return list_of(fitting, num_entries, devices, num_devices, CL_DEVICE_NOT_FOUND);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                       void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Device* found = opencl::find(device);
  if (found == nullptr) return CL_INVALID_DEVICE;
  cl_int result = CL_SUCCESS;
  if (answered_here(*found, param_name, answer, &result)) return result;
  const Question question = {found->session, Subject::kDevice, found->wire_id};
  if (param_name == CL_DEVICE_EXTENSIONS) return extensions(question, param_name, "", answer);
  if (param_name == CL_DEVICE_EXTENSIONS_WITH_VERSION || param_name == CL_DEVICE_OPENCL_C_FEATURES)
    return versioned_names(question, param_name, false, answer);
  if (param_name == CL_DEVICE_SVM_CAPABILITIES) return shared_abilities(question, answer);
  return ask_server(question, param_name, answer);
}

// Only parts of devices end.
cl_int clRetainDevice(cl_device_id device) {
  Device* found = opencl::find(device);
  if (found == nullptr) return CL_INVALID_DEVICE;
  if (found->parent != nullptr) retain(found);
  return CL_SUCCESS;
}

cl_int clReleaseDevice(cl_device_id device) {
  Device* found = opencl::find(device);
  if (found == nullptr) return CL_INVALID_DEVICE;
  return found->parent == nullptr || release(found) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clCreateSubDevices(cl_device_id in_device,
                          const cl_device_partition_property* partition_properties,
                          cl_uint num_entries, cl_device_id* out_devices, cl_uint* num_devices) {
  Device* whole = opencl::find(in_device);
  if (whole == nullptr) return CL_INVALID_DEVICE;
  if (partition_properties == nullptr || (out_devices == nullptr && num_devices == nullptr) ||
      (out_devices != nullptr && num_entries == 0))
    return CL_INVALID_VALUE;
  // Counts end with a 0, and the list with another one.
  std::vector<cl_device_partition_property> given;
  const bool by_counts = partition_properties[0] == CL_DEVICE_PARTITION_BY_COUNTS;
  for (size_t i = 0; i == 0 || partition_properties[i] != 0; ++i)
    given.push_back(partition_properties[i]);
  if (by_counts) given.push_back(CL_DEVICE_PARTITION_BY_COUNTS_LIST_END);
  given.push_back(0);
  wire::opencl::sub_devices_create_request request;
  wire::opencl::sub_devices_create_reply reply;
  request.device = whole->wire_id;
  request.properties = {reinterpret_cast<const uint64_t*>(given.data()), given.size()};
  request.room = out_devices != nullptr ? num_entries : 0;
  const cl_int result = whole->session->call(0, request, reply);
  if (result != CL_SUCCESS) return result;
  if (num_devices != nullptr) *num_devices = reply.count;
  for (uint64_t i = 0; i < reply.devices.count && i < request.room; ++i) {
    Device* device = create<cl_device_id>(whole->session, nullptr);
    if (device == nullptr) return CL_OUT_OF_HOST_MEMORY;
    device->wire_id = reply.devices[i];
    device->platform = whole->platform;
    device->type = whole->type;
    device->parent = whole;
    device->partition = given;
    use(whole);
    out_devices[i] = handle_of<cl_device_id>(device);
  }
  return CL_SUCCESS;
}

void* clGetExtensionFunctionAddress(const char* function_name) { return address_of(function_name); }

void* clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char* function_name) {
  return find(platform) != nullptr ? address_of(function_name) : nullptr;
}

cl_int clUnloadCompiler() { return CL_SUCCESS; }

cl_int clUnloadPlatformCompiler(cl_platform_id platform) {
  return find(platform) != nullptr ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

}  // namespace tendril::client::opencl
