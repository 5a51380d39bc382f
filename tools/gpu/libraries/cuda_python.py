# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own Python: cuda.bindings (driver, runtime, NVRTC) and cuda.core."""

import checks
from checks import check

np = checks.need("numpy")
driver = checks.need("cuda.bindings.driver")
runtime = checks.need("cuda.bindings.runtime")
nvrtc = checks.need("cuda.bindings.nvrtc")

SCALE = """
extern "C" __global__ void scale(float* data, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * by + i;
}
"""


def good(result):
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"{type(code).__name__} {int(code)}")
    return values[0] if len(values) == 1 else values


def compiled():
    program = good(nvrtc.nvrtcCreateProgram(SCALE.encode(), b"scale.cu", 0, [], []))
    good(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"]))
    text = b" " * good(nvrtc.nvrtcGetPTXSize(program))
    good(nvrtc.nvrtcGetPTX(program, text))
    return text


@check
def driver_calls():
    good(driver.cuInit(0))
    device = good(driver.cuDeviceGet(0))
    context = good(driver.cuDevicePrimaryCtxRetain(device))
    good(driver.cuCtxSetCurrent(context))
    module = good(driver.cuModuleLoadData(np.char.array(compiled()).ctypes.data))
    kernel = good(driver.cuModuleGetFunction(module, b"scale"))
    data = np.arange(1000, dtype=np.float32)
    at = good(driver.cuMemAlloc(data.nbytes))
    good(driver.cuMemcpyHtoD(at, data.ctypes.data, data.nbytes))
    values = [np.array([int(at)], np.uint64), np.array([3], np.float32), np.array([1000], np.int32)]
    pointers = np.array([value.ctypes.data for value in values], np.uint64)
    good(driver.cuLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, 0, 0, pointers.ctypes.data, 0))
    good(driver.cuMemcpyDtoH(data.ctypes.data, at, data.nbytes))
    good(driver.cuMemFree(at))
    return data, good(driver.cuDriverGetVersion())


@check
def runtime_calls():
    data = np.arange(5000, dtype=np.int32)
    at = good(runtime.cudaMalloc(data.nbytes))
    kind = runtime.cudaMemcpyKind
    good(runtime.cudaMemcpy(at, data.ctypes.data, data.nbytes, kind.cudaMemcpyHostToDevice))
    good(runtime.cudaMemset(at, 1, 100))
    good(runtime.cudaMemcpy(data.ctypes.data, at, data.nbytes, kind.cudaMemcpyDeviceToHost))
    good(runtime.cudaFree(at))
    return data, good(runtime.cudaGetDeviceCount())


@check
def core():
    found = checks.want("cuda.core")
    made = found if hasattr(found, "Device") else checks.want("cuda.core.experimental")
    device = made.Device(0)
    device.set_current()
    stream = device.create_stream()
    options = made.ProgramOptions(arch=f"sm_{device.arch}")
    module = made.Program(SCALE, code_type="c++", options=options).compile("cubin")
    kernel = module.get_kernel("scale")
    buffer = device.allocate(4000, stream=stream)
    host = made.LegacyPinnedMemoryResource().allocate(4000)
    view = np.from_dlpack(host).view(np.float32)
    view[:] = 2
    buffer.copy_from(host, stream=stream)
    config = made.LaunchConfig(grid=4, block=256)
    made.launch(stream, config, kernel, buffer, np.float32(2), np.int32(1000))
    buffer.copy_to(host, stream=stream)
    stream.sync()
    return np.array(view), device.name, tuple(device.compute_capability)


@check
def graph():
    good(driver.cuInit(0))
    stream = good(runtime.cudaStreamCreate())
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
    at = good(runtime.cudaMalloc(4096))
    good(runtime.cudaStreamBeginCapture(stream, mode))
    for value in range(8):
        good(runtime.cudaMemsetAsync(at + 256 * value, value, 256, stream))
    captured = good(runtime.cudaStreamEndCapture(stream))
    run = good(runtime.cudaGraphInstantiate(captured, 0))
    good(runtime.cudaGraphLaunch(run, stream))
    good(runtime.cudaStreamSynchronize(stream))
    out = np.zeros(4096, np.uint8)
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    good(runtime.cudaMemcpy(out.ctypes.data, at, 4096, kind))
    return out


checks.run()
