// SPDX-License-Identifier: Apache-2.0
// An FPGA that is not there, as an OpenCL driver: one device of type ACCELERATOR. It has no
// compiler: programs are binaries or built-in kernels. Queues are in order, one kernel runs at a
// time, and another program needs a slow reconfiguration. A loader can open it, and a program can
// open it as if it were the loader. Tests and the fuzz target of worker/opencl use it.
//
// A binary is the line "TENDRIL FPGA 1" and a line for each kernel: `add` (global int*, int),
// `work` (int: us), `fault` (): nothing runs after it. With OCL_ICD_TEST_FPGA_LANGUAGE set to 1.2
// or 2.2, the driver is one of that version, and takes such lines as a language, too: they begin
// with "TENDRIL LANGUAGE 1". In 2.2, `add` adds their specialization constant 0 (int), too.
//
// With OCL_ICD_TEST_FPGA_MAPS set, the device says that it is a processor as well, so workers map
// its memory. Mappings are then copies, made when the command runs. "batches": no event of what a
// flush took is over before all of it is; "late": a mapping takes 20 ms; "failing": it ends with
// an error; "refusing": the call has the error.
//
// With OCL_ICD_TEST_FPGA_FLUSH set to "waits", clFlush returns when all commands are over, as in
// some drivers.
#include <dlfcn.h>

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "api/opencl/versions.h"
#include "api/opencl_table.gen.h"
#include "tests/opencl/fpga/fpga.h"
#include "tests/opencl/fpga/objects.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace fpga;  // NOLINT: a library of its own

namespace {

constexpr size_t kMemoryBytes = 256u << 20;
constexpr char kHead[] = "TENDRIL FPGA 1\n";
constexpr char kLanguageHead[] = "TENDRIL LANGUAGE 1\n";
constexpr char kBuiltIn[] = "add;work";

// Empty: it takes none.
std::string language_version() {
  const char* const version = getenv("OCL_ICD_TEST_FPGA_LANGUAGE");
  return version != nullptr ? version : "";
}
bool is_new() { return language_version() == "2.2"; }
// Empty: they are the device's own memory.
std::string how_maps_are() {
  const char* const how = getenv("OCL_ICD_TEST_FPGA_MAPS");
  return how != nullptr ? how : "";
}
std::string version_text() {
  return is_new() ? "OpenCL 2.2 Tendril test FPGA" : "OpenCL 1.2 Tendril test FPGA";
}

cl_int not_there() { return CL_INVALID_OPERATION; }
#define FPGA_COUNT(symbol) +1
constexpr size_t kSlots = 0 TENDRIL_OPENCL_TABLE(FPGA_COUNT);
#undef FPGA_COUNT

template <typename T>
T* object(const void* handle, Kind kind) {
  check(handle, kind);
  return static_cast<T*>(const_cast<Object*>(static_cast<const Object*>(handle)));
}
Context* of(cl_context handle) { return object<Context>(handle, Kind::kContext); }
Queue* of(cl_command_queue handle) { return object<Queue>(handle, Kind::kQueue); }
Memory* of(cl_mem handle) { return object<Memory>(handle, Kind::kMemory); }
Program* of(cl_program handle) { return object<Program>(handle, Kind::kProgram); }
Kernel* of(cl_kernel handle) { return object<Kernel>(handle, Kind::kKernel); }
Event* of(cl_event handle) { return object<Event>(handle, Kind::kEvent); }

Platform& platform() {
  static auto* const made = new Platform;
  return *made;
}
Device& device() {
  static auto* const made = new Device;
  return *made;
}

template <typename Handle>
Handle handle_of(Object* made) {
  return reinterpret_cast<Handle>(made);
}
template <typename Handle>
Handle give(cl_int error, cl_int* into, Object* made = nullptr) {
  if (into != nullptr) *into = error;
  return handle_of<Handle>(made);
}

// Where a clGet*Info puts its answer.
struct Answer {
  size_t room;
  void* into;
  size_t* length;
  cl_int bytes(const void* data, size_t count) const {
    if (into != nullptr && room < count) return CL_INVALID_VALUE;
    if (into != nullptr) memcpy(into, data, count);
    if (length != nullptr) *length = count;
    return CL_SUCCESS;
  }
  template <typename T>
  cl_int one(const T& value) const {
    return bytes(&value, sizeof value);
  }
  cl_int text(const std::string& value) const { return bytes(value.c_str(), value.size() + 1); }
};
cl_uint references(const Object* counted) {
  return static_cast<cl_uint>(counted->references.load());
}

// Adds a command. `blocking`: waits for it.
cl_int enqueue(Queue* queue, cl_command_type type, cl_uint waits, const cl_event* list,
               cl_event* event, std::function<cl_int()> run, bool blocking = false) {
  if ((waits == 0) != (list == nullptr)) return CL_INVALID_EVENT_WAIT_LIST;
  auto* made = new Event(queue->context.get(), type, CL_QUEUED);
  made->queue = queue->self;
  const Kept<Event> kept(made);
  Queue::Command command{kept, {}, std::move(run)};
  for (cl_uint i = 0; i < waits; ++i) command.before.emplace_back(of(list[i]));
  queue->add(std::move(command));
  if (blocking) queue->flush();
  const cl_int result = blocking ? made->wait() : CL_SUCCESS;
  if (event != nullptr)
    *event = handle_of<cl_event>(made);
  else
    release(made);
  return result < 0 ? result : CL_SUCCESS;
}

bool inside(const Memory* memory, size_t offset, size_t bytes) {
  return bytes != 0 && offset <= memory->bytes && bytes <= memory->bytes - offset;
}

// False: it is no configuration of this FPGA.
bool read_binary(const std::string& text, std::vector<std::string>* kernels) {
  if (text.rfind(kHead, 0) != 0) return false;
  std::string name;
  for (const char letter : text.substr(sizeof kHead - 1)) {
    if (letter != '\n') {
      name.push_back(letter);
      continue;
    }
    if (name != "add" && name != "work" && name != "fault") return false;
    kernels->push_back(name);
    name.clear();
  }
  return name.empty() && !kernels->empty();
}

struct Rectangle {
  size_t origin[3], row, slice;
  Rectangle(const size_t* at, const size_t* region, size_t rows, size_t slices)
      : row(rows != 0 ? rows : region[0]), slice(slices != 0 ? slices : region[1] * row) {
    std::copy_n(at, 3, origin);
  }
  size_t at(size_t y, size_t z) const {
    return origin[0] + (origin[1] + y) * row + (origin[2] + z) * slice;
  }
  // False: it does not fit so many bytes.
  bool fits(const size_t* region, size_t bytes) const {
    size_t end = 0, part = 0;
    for (int i = 0; i < 3; ++i)
      if (region[i] == 0 || __builtin_add_overflow(origin[i], region[i], &part)) return false;
    if (row < region[0] || __builtin_mul_overflow(origin[2] + region[2] - 1, slice, &end) ||
        __builtin_mul_overflow(origin[1] + region[1] - 1, row, &part) ||
        __builtin_add_overflow(end, part, &end) ||
        __builtin_add_overflow(end, origin[0] + region[0], &end))
      return false;
    return end <= bytes;
  }
};

cl_int copy_rectangle(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t* origin,
                      const size_t* host_origin, const size_t* region, size_t row, size_t slice,
                      size_t host_row, size_t host_slice, uint8_t* host, bool reads, cl_uint waits,
                      const cl_event* list, cl_event* event) {
  Queue* queue = of(q);
  const Kept<Memory> memory(of(m));
  const Rectangle here(origin, region, row, slice),
      there(host_origin, region, host_row, host_slice);
  if (!here.fits(region, memory->bytes) || !there.fits(region, SIZE_MAX)) return CL_INVALID_VALUE;
  const size_t wide = region[0], high = region[1], deep = region[2];
  return enqueue(
      queue, reads ? CL_COMMAND_READ_BUFFER_RECT : CL_COMMAND_WRITE_BUFFER_RECT, waits, list, event,
      [=] {
        for (size_t z = 0; z < deep; ++z)
          for (size_t y = 0; y < high; ++y) {
            uint8_t* const mine = memory->data() + here.at(y, z);
            uint8_t* const theirs = host + there.at(y, z);
            memcpy(reads ? theirs : mine, reads ? mine : theirs, wide);
          }
        return CL_SUCCESS;
      },
      blocking != CL_FALSE);
}

}  // namespace

namespace fpga {
const void* g_table[kSlots + 16];
}

void fpga_end_all() { end_all(); }

// What this library has, by name; the rest refuses. As in a real driver, the table of an old
// version has no functions of a later one.
__attribute__((constructor)) static void fill_table() {
  Dl_info self = {};
  dladdr(reinterpret_cast<const void*>(&fill_table), &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  size_t slot = 0;
#define FPGA_SLOT(symbol) g_table[slot++] = library != nullptr ? dlsym(library, #symbol) : nullptr;
  TENDRIL_OPENCL_TABLE(FPGA_SLOT)
#undef FPGA_SLOT
  for (const void*& each : g_table)
    if (each == nullptr) each = reinterpret_cast<const void*>(&not_there);
  slot = 0;
  size_t first = 0;
#define FPGA_FIRST(symbol)                                                      \
  if (strcmp(#symbol, "clCreateCommandQueueWithProperties") == 0) first = slot; \
  ++slot;
  TENDRIL_OPENCL_TABLE(FPGA_FIRST)
#undef FPGA_FIRST
  if (!is_new()) std::fill(g_table + first, std::end(g_table), nullptr);
}

EXPORTED cl_int clGetPlatformIDs(cl_uint room, cl_platform_id* into, cl_uint* count) {
  if (into != nullptr && room != 0) *into = handle_of<cl_platform_id>(&platform());
  if (count != nullptr) *count = 1;
  return CL_SUCCESS;
}
EXPORTED cl_int clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id* into, cl_uint* count) {
  return clGetPlatformIDs(room, into, count);
}
EXPORTED clCreateProgramWithIL_t clCreateProgramWithIL;
EXPORTED void* clGetExtensionFunctionAddress(const char* name) {
  if (strcmp(name, "clCreateProgramWithILKHR") == 0 && !language_version().empty())
    return reinterpret_cast<void*>(&clCreateProgramWithIL);
  if (strcmp(name, "clIcdGetPlatformIDsKHR") != 0) return nullptr;
  return reinterpret_cast<void*>(&clIcdGetPlatformIDsKHR);
}
EXPORTED void* clGetExtensionFunctionAddressForPlatform(cl_platform_id, const char* name) {
  return clGetExtensionFunctionAddress(name);
}

EXPORTED cl_int clGetPlatformInfo(cl_platform_id, cl_platform_info parameter, size_t room,
                                  void* into, size_t* length) {
  const Answer answer = {room, into, length};
  switch (parameter) {
    case CL_PLATFORM_PROFILE:
      return answer.text("EMBEDDED_PROFILE");
    case CL_PLATFORM_VERSION:
      return answer.text(version_text());
    case CL_PLATFORM_NAME:
      return answer.text("Tendril test FPGA");
    case CL_PLATFORM_VENDOR:
      return answer.text("Tendril");
    case CL_PLATFORM_EXTENSIONS:
      return answer.text("cl_khr_icd");
    case CL_PLATFORM_ICD_SUFFIX_KHR:
      return answer.text("FPGA");
    default:
      return CL_INVALID_VALUE;
  }
}

EXPORTED cl_int clGetDeviceIDs(cl_platform_id, cl_device_type type, cl_uint room,
                               cl_device_id* into, cl_uint* count) {
  if ((type & (CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_DEFAULT)) == 0)
    return CL_DEVICE_NOT_FOUND;
  if (into != nullptr && room != 0) *into = handle_of<cl_device_id>(&device());
  if (count != nullptr) *count = 1;
  return CL_SUCCESS;
}

static cl_int device_number(cl_device_info parameter, const Answer& answer) {
  switch (parameter) {
    case CL_DEVICE_VENDOR_ID:
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return answer.one(cl_uint{1024});
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return answer.one(cl_uint{1});
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
      return answer.one(cl_uint{3});
    case CL_DEVICE_ADDRESS_BITS:
      return answer.one(cl_uint{64});
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
    case CL_DEVICE_MAX_PARAMETER_SIZE:
      return answer.one(size_t{1024});
    case CL_DEVICE_MAX_WORK_ITEM_SIZES: {
      const size_t sizes[3] = {1024, 1024, 1024};
      return answer.one(sizes);
    }
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return answer.one(cl_ulong{kMemoryBytes});
    case CL_DEVICE_LOCAL_MEM_SIZE:
    case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE:
      return answer.one(cl_ulong{65536});
    case CL_DEVICE_EXECUTION_CAPABILITIES:
      return answer.one(cl_device_exec_capabilities{CL_EXEC_KERNEL});
    case CL_DEVICE_QUEUE_PROPERTIES:
      return answer.one(cl_command_queue_properties{CL_QUEUE_PROFILING_ENABLE});
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE:
      return answer.one(cl_bool{CL_TRUE});
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_LINKER_AVAILABLE:
    case CL_DEVICE_IMAGE_SUPPORT:
      return answer.one(cl_bool{CL_FALSE});
    default:
      return CL_INVALID_VALUE;
  }
}

EXPORTED cl_int clGetDeviceInfo(cl_device_id handle, cl_device_info parameter, size_t room,
                                void* into, size_t* length) {
  check(handle, Kind::kDevice);
  const Answer answer = {room, into, length};
  switch (parameter) {
    case CL_DEVICE_TYPE:
      return answer.one(
          cl_device_type{CL_DEVICE_TYPE_ACCELERATOR |
                         (how_maps_are().empty() ? cl_device_type{0} : CL_DEVICE_TYPE_CPU)});
    case CL_DEVICE_NAME:
      return answer.text("Tendril test FPGA");
    case CL_DEVICE_VENDOR:
      return answer.text("Tendril");
    case CL_DEVICE_VERSION:
      return answer.text(version_text());
    case CL_DEVICE_IL_VERSION:
      return language_version().empty() ? CL_INVALID_VALUE : answer.text("TENDRIL_1.0");
    case CL_DRIVER_VERSION:
      return answer.text("1");
    case CL_DEVICE_PROFILE:
      return answer.text("EMBEDDED_PROFILE");
    case CL_DEVICE_EXTENSIONS:
      return answer.text(language_version().empty()
                             ? "cl_tendril_test_bitstream"
                             : "cl_tendril_test_bitstream cl_khr_il_program");
    case CL_DEVICE_BUILT_IN_KERNELS:
      return answer.text(kBuiltIn);
    case CL_DEVICE_PLATFORM:
      return answer.one(handle_of<cl_platform_id>(&platform()));
    default:
      return device_number(parameter, answer);
  }
}

EXPORTED cl_context clCreateContext(const cl_context_properties*, cl_uint count,
                                    const cl_device_id* devices, cl_context_notify, void*,
                                    cl_int* error) {
  for (cl_uint i = 0; i < count; ++i) check(devices[i], Kind::kDevice);
  return give<cl_context>(CL_SUCCESS, error, new Context);
}
EXPORTED cl_int clGetContextInfo(cl_context handle, cl_context_info parameter, size_t room,
                                 void* into, size_t* length) {
  const Answer answer = {room, into, length};
  const Context* context = of(handle);
  if (parameter == CL_CONTEXT_REFERENCE_COUNT) return answer.one(references(context));
  if (parameter == CL_CONTEXT_NUM_DEVICES) return answer.one(cl_uint{1});
  if (parameter == CL_CONTEXT_DEVICES) return answer.one(handle_of<cl_device_id>(&device()));
  return CL_INVALID_VALUE;
}

#define FPGA_REFERENCES(name, type)            \
  EXPORTED cl_int clRetain##name(type held) {  \
    retain(of(held));                          \
    return CL_SUCCESS;                         \
  }                                            \
  EXPORTED cl_int clRelease##name(type held) { \
    release(of(held));                         \
    return CL_SUCCESS;                         \
  }
FPGA_REFERENCES(Context, cl_context)
FPGA_REFERENCES(CommandQueue, cl_command_queue)
FPGA_REFERENCES(MemObject, cl_mem)
FPGA_REFERENCES(Program, cl_program)
FPGA_REFERENCES(Kernel, cl_kernel)
FPGA_REFERENCES(Event, cl_event)
#undef FPGA_REFERENCES
EXPORTED cl_int clRetainDevice(cl_device_id handle) {
  check(handle, Kind::kDevice);
  return CL_SUCCESS;
}
EXPORTED cl_int clReleaseDevice(cl_device_id handle) { return clRetainDevice(handle); }

EXPORTED cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id on,
                                               cl_command_queue_properties properties,
                                               cl_int* error) {
  Context* in = of(context);
  check(on, Kind::kDevice);
  if ((properties & ~cl_bitfield{CL_QUEUE_PROFILING_ENABLE}) != 0)
    return give<cl_command_queue>(CL_INVALID_QUEUE_PROPERTIES, error);
  return give<cl_command_queue>(
      CL_SUCCESS, error,
      new Queue(in, (properties & CL_QUEUE_PROFILING_ENABLE) != 0, how_maps_are() == "batches"));
}
EXPORTED cl_command_queue clCreateCommandQueueWithProperties(cl_context context,
                                                             cl_device_id device,
                                                             const cl_queue_properties* properties,
                                                             cl_int* error) {
  if (!is_new()) return give<cl_command_queue>(CL_INVALID_OPERATION, error);
  cl_command_queue_properties plain = 0;
  for (; properties != nullptr && properties[0] != 0; properties += 2)
    if (properties[0] == CL_QUEUE_PROPERTIES) plain = properties[1];
  return clCreateCommandQueue(context, device, plain, error);
}
EXPORTED cl_int clGetCommandQueueInfo(cl_command_queue handle, cl_command_queue_info parameter,
                                      size_t room, void* into, size_t* length) {
  const Answer answer = {room, into, length};
  const Queue* queue = of(handle);
  if (parameter == CL_QUEUE_CONTEXT) return answer.one(handle_of<cl_context>(queue->context.get()));
  if (parameter == CL_QUEUE_DEVICE) return answer.one(handle_of<cl_device_id>(&device()));
  if (parameter == CL_QUEUE_REFERENCE_COUNT) return answer.one(references(queue));
  return CL_INVALID_VALUE;
}
EXPORTED clFinish_t clFinish;
EXPORTED cl_int clFlush(cl_command_queue handle) {
  const char* const how = getenv("OCL_ICD_TEST_FPGA_FLUSH");
  if (how != nullptr && strcmp(how, "waits") == 0) return clFinish(handle);
  of(handle)->flush();
  return CL_SUCCESS;
}
EXPORTED cl_int clFinish(cl_command_queue handle) {
  of(handle)->finish();
  return CL_SUCCESS;
}

EXPORTED cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                               cl_int* error) {
  Context* in = of(context);
  if (size == 0 || size > kMemoryBytes) return give<cl_mem>(CL_INVALID_BUFFER_SIZE, error);
  const bool copies = (flags & (CL_MEM_COPY_HOST_PTR | CL_MEM_USE_HOST_PTR)) != 0;
  if (copies != (host != nullptr)) return give<cl_mem>(CL_INVALID_HOST_PTR, error);
  auto* memory = new Memory(in, flags, size);
  memory->own.resize(size);
  if (copies) memcpy(memory->own.data(), host, size);
  return give<cl_mem>(CL_SUCCESS, error, memory);
}
EXPORTED cl_mem clCreateSubBuffer(cl_mem handle, cl_mem_flags flags, cl_buffer_create_type,
                                  const void* info, cl_int* error) {
  Memory* parent = of(handle);
  const auto* region = static_cast<const cl_buffer_region*>(info);
  if (parent->parent.get() != nullptr) return give<cl_mem>(CL_INVALID_MEM_OBJECT, error);
  if (!inside(parent, region->origin, region->size)) return give<cl_mem>(CL_INVALID_VALUE, error);
  auto* memory = new Memory(parent->context.get(), flags, region->size);
  memory->parent = Kept<Memory>(parent);
  memory->origin = region->origin;
  return give<cl_mem>(CL_SUCCESS, error, memory);
}
EXPORTED cl_int clGetMemObjectInfo(cl_mem handle, cl_mem_info parameter, size_t room, void* into,
                                   size_t* length) {
  const Answer answer = {room, into, length};
  const Memory* memory = of(handle);
  if (parameter == CL_MEM_TYPE) return answer.one(cl_mem_object_type{CL_MEM_OBJECT_BUFFER});
  if (parameter == CL_MEM_SIZE) return answer.one(memory->bytes);
  if (parameter == CL_MEM_FLAGS) return answer.one(memory->flags);
  return CL_INVALID_VALUE;
}
EXPORTED cl_int clSetMemObjectDestructorCallback(cl_mem handle, cl_mem_notify notify, void* data) {
  of(handle)->ends.emplace_back([=] { notify(handle, data); });
  return CL_SUCCESS;
}

EXPORTED cl_program clCreateProgramWithSource(cl_context context, cl_uint, const char**,
                                              const size_t*, cl_int* error) {
  return give<cl_program>(CL_SUCCESS, error, new Program(of(context)));  // which never builds
}
EXPORTED cl_program clCreateProgramWithBinary(cl_context context, cl_uint count,
                                              const cl_device_id* devices, const size_t* lengths,
                                              const unsigned char** binaries, cl_int* status,
                                              cl_int* error) {
  Context* in = of(context);
  if (count != 1) return give<cl_program>(CL_INVALID_VALUE, error);
  check(devices[0], Kind::kDevice);
  std::vector<std::string> kernels;
  const std::string binary(reinterpret_cast<const char*>(binaries[0]), lengths[0]);
  const bool good = read_binary(binary, &kernels);
  if (status != nullptr) status[0] = good ? CL_SUCCESS : CL_INVALID_BINARY;
  if (!good) return give<cl_program>(CL_INVALID_BINARY, error);
  auto* program = new Program(in);
  program->binary = binary;
  program->kernels = kernels;
  return give<cl_program>(CL_SUCCESS, error, program);
}
EXPORTED cl_program clCreateProgramWithIL(cl_context context, const void* language, size_t length,
                                          cl_int* error) {
  Context* in = of(context);
  if (language_version().empty()) return give<cl_program>(CL_INVALID_OPERATION, error);
  const std::string text(static_cast<const char*>(language), length);
  std::vector<std::string> kernels;
  if (text.rfind(kLanguageHead, 0) != 0 ||
      !read_binary(kHead + text.substr(sizeof kLanguageHead - 1), &kernels))
    return give<cl_program>(CL_INVALID_VALUE, error);
  auto* program = new Program(in);
  program->binary = kHead + text.substr(sizeof kLanguageHead - 1);
  program->kernels = kernels;
  return give<cl_program>(CL_SUCCESS, error, program);
}
EXPORTED cl_int clSetProgramSpecializationConstant(cl_program handle, cl_uint number, size_t size,
                                                   const void* value) {
  Program* program = of(handle);
  if (!is_new()) return CL_INVALID_OPERATION;
  if (number != 0) return CL_INVALID_SPEC_ID;
  if (size != sizeof program->constant) return CL_INVALID_VALUE;
  memcpy(&program->constant, value, size);
  return CL_SUCCESS;
}
EXPORTED cl_program clCreateProgramWithBuiltInKernels(cl_context context, cl_uint,
                                                      const cl_device_id*, const char* names,
                                                      cl_int* error) {
  Context* in = of(context);
  std::string binary = kHead + std::string(names) + "\n";
  std::replace(binary.begin() + sizeof kHead - 1, binary.end(), ';', '\n');
  std::vector<std::string> kernels;
  if (!read_binary(binary, &kernels) || strstr(names, "fault") != nullptr)
    return give<cl_program>(CL_INVALID_VALUE, error);
  auto* program = new Program(in);
  program->binary = binary;
  program->kernels = kernels;
  program->built = true;
  return give<cl_program>(CL_SUCCESS, error, program);
}
EXPORTED cl_int clBuildProgram(cl_program handle, cl_uint, const cl_device_id*, const char*,
                               cl_program_notify, void*) {
  Program* program = of(handle);
  program->built = !program->kernels.empty();
  return program->built ? CL_SUCCESS : CL_COMPILER_NOT_AVAILABLE;
}
EXPORTED cl_int clGetProgramInfo(cl_program handle, cl_program_info parameter, size_t room,
                                 void* into, size_t* length) {
  const Answer answer = {room, into, length};
  const Program* program = of(handle);
  std::string names;
  for (const std::string& each : program->kernels) names += (names.empty() ? "" : ";") + each;
  switch (parameter) {
    case CL_PROGRAM_NUM_DEVICES:
      return answer.one(cl_uint{1});
    case CL_PROGRAM_NUM_KERNELS:
      return answer.one(program->kernels.size());
    case CL_PROGRAM_KERNEL_NAMES:
      return answer.text(names);
    case CL_PROGRAM_BINARY_SIZES:
      return answer.one(program->binary.size());
    case CL_PROGRAM_BINARIES: {
      auto** const binaries = static_cast<unsigned char**>(into);
      if (binaries != nullptr && binaries[0] != nullptr)
        memcpy(binaries[0], program->binary.data(), program->binary.size());
      if (length != nullptr) *length = sizeof(void*);
      return CL_SUCCESS;
    }
    default:
      return CL_INVALID_VALUE;
  }
}
EXPORTED cl_int clGetProgramBuildInfo(cl_program handle, cl_device_id, cl_program_build_info what,
                                      size_t room, void* into, size_t* length) {
  const Answer answer = {room, into, length};
  const Program* program = of(handle);
  if (what == CL_PROGRAM_BUILD_STATUS)
    return answer.one(cl_build_status{program->built ? CL_BUILD_SUCCESS : CL_BUILD_NONE});
  if (what == CL_PROGRAM_BUILD_LOG) return answer.text("");
  return CL_INVALID_VALUE;
}

EXPORTED cl_kernel clCreateKernel(cl_program handle, const char* name, cl_int* error) {
  Program* program = of(handle);
  if (!program->built) return give<cl_kernel>(CL_INVALID_PROGRAM_EXECUTABLE, error);
  for (const std::string& each : program->kernels)
    if (each == name) return give<cl_kernel>(CL_SUCCESS, error, new Kernel(program, each));
  return give<cl_kernel>(CL_INVALID_KERNEL_NAME, error);
}
static cl_uint arguments_of(const Kernel* kernel) {
  return kernel->name == "add" ? 2 : kernel->name == "work" ? 1 : 0;
}
EXPORTED cl_int clSetKernelArg(cl_kernel handle, cl_uint index, size_t size, const void* value) {
  Kernel* kernel = of(handle);
  if (index >= arguments_of(kernel)) return CL_INVALID_ARG_INDEX;
  if (kernel->name == "add" && index == 0) {
    if (size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
    cl_mem memory = nullptr;
    if (value != nullptr) memcpy(&memory, value, sizeof memory);
    kernel->memory = Kept<Memory>(memory != nullptr ? of(memory) : nullptr);
    return CL_SUCCESS;
  }
  if (size != sizeof kernel->number) return CL_INVALID_ARG_SIZE;
  if (value == nullptr) return CL_INVALID_ARG_VALUE;
  memcpy(&kernel->number, value, sizeof kernel->number);
  return CL_SUCCESS;
}
EXPORTED cl_int clGetKernelInfo(cl_kernel handle, cl_kernel_info parameter, size_t room, void* into,
                                size_t* length) {
  const Answer answer = {room, into, length};
  const Kernel* kernel = of(handle);
  if (parameter == CL_KERNEL_NUM_ARGS) return answer.one(arguments_of(kernel));
  if (parameter == CL_KERNEL_FUNCTION_NAME) return answer.text(kernel->name);
  return CL_INVALID_VALUE;
}
EXPORTED cl_int clGetKernelWorkGroupInfo(cl_kernel handle, cl_device_id,
                                         cl_kernel_work_group_info parameter, size_t room,
                                         void* into, size_t* length) {
  of(handle);
  if (parameter != CL_KERNEL_WORK_GROUP_SIZE) return CL_INVALID_VALUE;
  return Answer{room, into, length}.one(size_t{1024});
}

EXPORTED cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel handle, cl_uint dimensions,
                                       const size_t*, const size_t* global, const size_t*,
                                       cl_uint waits, const cl_event* list, cl_event* event) {
  const Kept<Kernel> kernel(of(handle));
  constexpr size_t kItemsMax = size_t{1} << 30;
  size_t items = 1;
  for (cl_uint i = 0; global != nullptr && i < dimensions; ++i) items *= global[i];
  if (global == nullptr || items == 0) return CL_INVALID_GLOBAL_WORK_SIZE;
  if (items > kItemsMax) return CL_OUT_OF_RESOURCES;
  const Kept<Memory> memory = kernel->memory;
  return enqueue(of(queue), CL_COMMAND_NDRANGE_KERNEL, waits, list, event,
                 [=, number = kernel->number + kernel->program->constant] {
                   return run_kernel(kernel->name, kernel->program->binary, memory.get(), number,
                                     items);
                 });
}

EXPORTED cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem handle, cl_bool blocking,
                                    size_t offset, size_t bytes, void* into, cl_uint waits,
                                    const cl_event* list, cl_event* event) {
  const Kept<Memory> memory(of(handle));
  if (!inside(memory.get(), offset, bytes)) return CL_INVALID_VALUE;
  return enqueue(
      of(queue), CL_COMMAND_READ_BUFFER, waits, list, event,
      [=] {
        memcpy(into, memory->data() + offset, bytes);
        return CL_SUCCESS;
      },
      blocking != CL_FALSE);
}
EXPORTED cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem handle, cl_bool blocking,
                                     size_t offset, size_t bytes, const void* from, cl_uint waits,
                                     const cl_event* list, cl_event* event) {
  const Kept<Memory> memory(of(handle));
  if (!inside(memory.get(), offset, bytes)) return CL_INVALID_VALUE;
  return enqueue(
      of(queue), CL_COMMAND_WRITE_BUFFER, waits, list, event,
      [=] {
        memcpy(memory->data() + offset, from, bytes);
        return CL_SUCCESS;
      },
      blocking != CL_FALSE);
}
EXPORTED cl_int clEnqueueReadBufferRect(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                        const size_t* origin, const size_t* host_origin,
                                        const size_t* region, size_t row, size_t slice,
                                        size_t host_row, size_t host_slice, void* host,
                                        cl_uint waits, const cl_event* list, cl_event* event) {
  return copy_rectangle(queue, memory, blocking, origin, host_origin, region, row, slice, host_row,
                        host_slice, static_cast<uint8_t*>(host), true, waits, list, event);
}
EXPORTED cl_int clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                         const size_t* origin, const size_t* host_origin,
                                         const size_t* region, size_t row, size_t slice,
                                         size_t host_row, size_t host_slice, const void* host,
                                         cl_uint waits, const cl_event* list, cl_event* event) {
  return copy_rectangle(queue, memory, blocking, origin, host_origin, region, row, slice, host_row,
                        host_slice, const_cast<uint8_t*>(static_cast<const uint8_t*>(host)), false,
                        waits, list, event);
}
EXPORTED cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem source, cl_mem target,
                                    size_t from, size_t to, size_t bytes, cl_uint waits,
                                    const cl_event* list, cl_event* event) {
  const Kept<Memory> one(of(source)), other(of(target));
  if (!inside(one.get(), from, bytes) || !inside(other.get(), to, bytes)) return CL_INVALID_VALUE;
  return enqueue(of(queue), CL_COMMAND_COPY_BUFFER, waits, list, event, [=] {
    memmove(other->data() + to, one->data() + from, bytes);
    return CL_SUCCESS;
  });
}
EXPORTED cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem handle, const void* pattern,
                                    size_t length, size_t offset, size_t bytes, cl_uint waits,
                                    const cl_event* list, cl_event* event) {
  const Kept<Memory> memory(of(handle));
  if (!inside(memory.get(), offset, bytes) || length == 0 || length > 128 || bytes % length != 0)
    return CL_INVALID_VALUE;
  const std::string text(static_cast<const char*>(pattern), length);
  return enqueue(of(queue), CL_COMMAND_FILL_BUFFER, waits, list, event, [=] {
    for (size_t at = 0; at < bytes; at += length)
      memcpy(memory->data() + offset + at, text.data(), length);
    return CL_SUCCESS;
  });
}
// A copy of a part of the memory, which lies behind `origin`.
static void* map_copy(Memory* memory, Queue* queue, cl_map_flags flags, size_t origin, size_t bytes,
                      cl_uint waits, const cl_event* list, cl_event* event, cl_int* error) {
  const std::string how = how_maps_are();
  if (how == "refusing") {
    *error = CL_MAP_FAILURE;
    return nullptr;
  }
  const auto copy = std::make_shared<Memory::Mapped>();
  copy->bytes.resize(bytes, 0xee);
  copy->origin = origin;
  copy->writes = (flags & ~cl_map_flags{CL_MAP_READ}) != 0;
  uint8_t* const at = copy->bytes.data();
  memory->mapped[at] = copy;
  const Kept<Memory> kept(memory);
  *error = enqueue(queue, CL_COMMAND_MAP_BUFFER, waits, list, event, [=]() -> cl_int {
    if (how == "failing") return CL_OUT_OF_RESOURCES;
    if (how == "late") usleep(20'000);
    memcpy(copy->bytes.data(), kept->data() + origin, bytes);
    copy->is_there = true;
    return CL_SUCCESS;
  });
  return at;
}

EXPORTED void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem handle, cl_bool blocking,
                                  cl_map_flags flags, size_t offset, size_t bytes, cl_uint waits,
                                  const cl_event* list, cl_event* event, cl_int* error) {
  Memory* memory = of(handle);
  *error = inside(memory, offset, bytes) ? CL_SUCCESS : CL_INVALID_VALUE;
  if (*error != CL_SUCCESS) return nullptr;
  if (!how_maps_are().empty())
    return map_copy(memory, of(queue), flags, offset, bytes, waits, list, event, error);
  *error = enqueue(
      of(queue), CL_COMMAND_MAP_BUFFER, waits, list, event, [] { return CL_SUCCESS; },
      blocking != CL_FALSE);
  return memory->data() + offset;
}
EXPORTED cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem handle, void* at,
                                        cl_uint waits, const cl_event* list, cl_event* event) {
  const Kept<Memory> memory(of(handle));
  std::shared_ptr<Memory::Mapped> copy;
  if (const auto found = memory->mapped.find(at); found != memory->mapped.end()) {
    copy = found->second;
    memory->mapped.erase(found);
  }
  return enqueue(of(queue), CL_COMMAND_UNMAP_MEM_OBJECT, waits, list, event, [=] {
    if (copy != nullptr && copy->is_there && copy->writes)
      memcpy(memory->data() + copy->origin, copy->bytes.data(), copy->bytes.size());
    return CL_SUCCESS;
  });
}
EXPORTED cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint waits,
                                            const cl_event* list, cl_event* event) {
  return enqueue(of(queue), CL_COMMAND_MARKER, waits, list, event, [] { return CL_SUCCESS; });
}
EXPORTED cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint waits,
                                             const cl_event* list, cl_event* event) {
  return enqueue(of(queue), CL_COMMAND_BARRIER, waits, list, event, [] { return CL_SUCCESS; });
}

EXPORTED cl_int clWaitForEvents(cl_uint count, const cl_event* events) {
  cl_int result = CL_SUCCESS;
  for (cl_uint i = 0; i < count; ++i)
    if (const auto queue = of(events[i])->queue.lock()) (*queue)->flush();
  for (cl_uint i = 0; i < count; ++i)
    if (of(events[i])->wait() < 0) result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  return result;
}
EXPORTED cl_int clGetEventInfo(cl_event handle, cl_event_info parameter, size_t room, void* into,
                               size_t* length) {
  const Answer answer = {room, into, length};
  Event* event = of(handle);
  if (parameter == CL_EVENT_COMMAND_TYPE) return answer.one(event->command);
  if (parameter == CL_EVENT_COMMAND_QUEUE) {
    const auto queue = event->queue.lock();
    return answer.one(handle_of<cl_command_queue>(queue != nullptr ? *queue : nullptr));
  }
  if (parameter != CL_EVENT_COMMAND_EXECUTION_STATUS) return CL_INVALID_VALUE;
  const std::lock_guard<std::mutex> hold(event->mutex);
  return answer.one(event->status);
}
EXPORTED cl_int clGetEventProfilingInfo(cl_event handle, cl_profiling_info parameter, size_t room,
                                        void* into, size_t* length) {
  Event* event = of(handle);
  const std::lock_guard<std::mutex> hold(event->mutex);
  if (event->status != CL_COMPLETE) return CL_PROFILING_INFO_NOT_AVAILABLE;
  if (parameter < CL_PROFILING_COMMAND_QUEUED || parameter > CL_PROFILING_COMMAND_END)
    return CL_INVALID_VALUE;
  return Answer{room, into, length}.one(event->times[parameter - CL_PROFILING_COMMAND_QUEUED]);
}
EXPORTED cl_event clCreateUserEvent(cl_context context, cl_int* error) {
  return give<cl_event>(CL_SUCCESS, error, new Event(of(context), CL_COMMAND_USER, CL_SUBMITTED));
}
EXPORTED cl_int clSetUserEventStatus(cl_event handle, cl_int status) {
  Event* event = of(handle);
  if (event->command != CL_COMMAND_USER) return CL_INVALID_EVENT;
  if (status > CL_COMPLETE) return CL_INVALID_VALUE;
  {
    const std::lock_guard<std::mutex> hold(event->mutex);
    if (event->status <= CL_COMPLETE) return CL_INVALID_OPERATION;
  }
  event->set(status);
  return CL_SUCCESS;
}
EXPORTED cl_int clSetEventCallback(cl_event handle, cl_int at, cl_event_notify notify, void* data) {
  Event* event = of(handle);
  if (at < CL_COMPLETE || at > CL_SUBMITTED) return CL_INVALID_VALUE;
  event->call_when(at, [=](cl_int status) { notify(handle, status < 0 ? status : at, data); });
  return CL_SUCCESS;
}

// What this driver has not, and returns an object. It must say so itself.
EXPORTED cl_mem clCreateImage(cl_context, cl_mem_flags, const cl_image_format*,
                              const cl_image_desc*, void*, cl_int* error) {
  return give<cl_mem>(CL_INVALID_OPERATION, error);
}
EXPORTED cl_mem clCreatePipe(cl_context, cl_mem_flags, cl_uint, cl_uint, const cl_pipe_properties*,
                             cl_int* error) {
  return give<cl_mem>(CL_INVALID_OPERATION, error);
}
EXPORTED cl_sampler clCreateSampler(cl_context, cl_bool, cl_addressing_mode, cl_filter_mode,
                                    cl_int* error) {
  return give<cl_sampler>(CL_INVALID_OPERATION, error);
}
EXPORTED cl_sampler clCreateSamplerWithProperties(cl_context, const cl_sampler_properties*,
                                                  cl_int* error) {
  return give<cl_sampler>(CL_INVALID_OPERATION, error);
}
EXPORTED cl_program clLinkProgram(cl_context, cl_uint, const cl_device_id*, const char*, cl_uint,
                                  const cl_program*, cl_program_notify, void*, cl_int* error) {
  return give<cl_program>(CL_INVALID_OPERATION, error);
}
EXPORTED cl_kernel clCloneKernel(cl_kernel, cl_int* error) {
  return give<cl_kernel>(CL_INVALID_OPERATION, error);
}
EXPORTED void* clSVMAlloc(cl_context, cl_svm_mem_flags, size_t, unsigned int) { return nullptr; }
