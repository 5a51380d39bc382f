// SPDX-License-Identifier: Apache-2.0
// Speed of the software GPU's interpreter: five kernels, in thread instructions per second. Beside
// each runs a plain C++ loop that does the same work on one thread. Without arguments, or with a
// part of a kernel's name, it prints figures. With `--check` it also fails if a kernel's time, in
// multiples of the plain loop's time, is over its limit. So the test suite notices a slow
// interpreter on any machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu_kernels.ptx.gen.h"

namespace {

using namespace tendril::softgpu;

constexpr uint64_t kBase = 0x700000000000ull;
constexpr int kRounds = 5;

class Gpu {
 public:
  Gpu() : memory_(64u << 20) {
    MemoryRegion r;
    r.base = kBase, r.bytes = memory_.size(), r.host = memory_.data();
    view_.regions.push_back(r);
    std::string log;
    program_ = parse_program(kSoftgpuKernelsPtx, &log);
    if (!program_) fail(log);
  }
  [[noreturn]] static void fail(const std::string& why) {
    std::fprintf(stderr, "softgpu_bench: %s\n", why.c_str());
    std::exit(1);
  }
  void clear() { top_ = 4096; }
  uint64_t alloc(size_t bytes) {
    const uint64_t at = kBase + top_;
    top_ = (top_ + bytes + 255) & ~size_t{255};
    if (top_ > memory_.size()) fail("the kernels need more memory than there is");
    return at;
  }
  template <class T>
  T* at(uint64_t address) {
    return reinterpret_cast<T*>(memory_.data() + (address - kBase));
  }
  template <class... Arguments>
  LaunchResult run(const char* kernel, Dim3 grid, Dim3 block, Arguments... arguments) {
    LaunchRequest r;
    r.program = program_.get();
    for (r.kernel_index = 0; program_->kernels()[r.kernel_index].name != kernel;) ++r.kernel_index;
    const KernelInfo& k = program_->kernels()[r.kernel_index];
    std::vector<uint8_t> params(k.param_bytes);
    size_t i = 0;
    ((std::memcpy(params.data() + k.params[i].offset, &arguments, sizeof arguments), ++i), ...);
    r.grid = grid, r.block = block, r.params = params.data(), r.memory = &view_;
    LaunchResult result = run_grid(r);
    if (result.fault != Fault::kNone) fail(result.message);
    return result;
  }

 private:
  std::vector<uint8_t> memory_;
  MemoryView view_;
  std::unique_ptr<Program> program_;
  size_t top_ = 4096;
};

// One kernel: how to run it, a plain loop that does the same work in its own memory, and where both
// leave their results.
struct Subject {
  const char* name;
  double limit;  // in multiples of the plain loop's time; see bench/README.md
  std::function<LaunchResult()> simulate;
  std::function<void()> plain;
  std::function<bool()> agree;
};

bool close(const std::vector<float>& want, const float* got) {
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::fabs(want[i] - got[i]) <= 1e-4f * std::fmax(1.0f, std::fabs(want[i])))) return false;
  return true;
}

std::vector<float> ramp(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 97) * 0.25f - 3;
  return v;
}

uint64_t upload(Gpu& gpu, const std::vector<float>& v) {
  const uint64_t at = gpu.alloc(v.size() * sizeof(float));
  std::memcpy(gpu.at<float>(at), v.data(), v.size() * sizeof(float));
  return at;
}

Subject vector_add(Gpu& gpu) {
  constexpr uint32_t n = 2u << 20;
  auto a = std::make_shared<std::vector<float>>(ramp(n)),
       want = std::make_shared<std::vector<float>>(n);
  const uint64_t da = upload(gpu, *a), db = upload(gpu, *a), dc = gpu.alloc(n * 4);
  return {"vector add, 2 M floats", 60,
          [&gpu, da, db, dc] {
            return gpu.run("vector_add", {n / 256, 1, 1}, {256, 1, 1}, da, db, dc, n);
          },
          [a, want] {
            for (uint32_t i = 0; i < n; ++i) (*want)[i] = (*a)[i] + (*a)[i];
          },
          [&gpu, dc, want] { return close(*want, gpu.at<float>(dc)); }};
}

Subject reduce(Gpu& gpu) {
  constexpr uint32_t n = 2u << 20, blocks = n / 512;
  auto a = std::make_shared<std::vector<float>>(ramp(n)),
       want = std::make_shared<std::vector<float>>(blocks);
  const uint64_t da = upload(gpu, *a), dc = gpu.alloc(blocks * 4);
  return {"shared-memory reduction, 2 M floats", 80,
          [&gpu, da, dc] {
            return gpu.run("reduce_shared", {blocks, 1, 1}, {256, 1, 1}, da, dc, n);
          },
          [a, want] {
            for (uint32_t i = 0; i < blocks; ++i) {
              float sum = 0;
              for (uint32_t k = 0; k < 512; ++k) sum += (*a)[i * 512 + k];
              (*want)[i] = sum;
            }
          },
          [&gpu, dc, want] { return close(*want, gpu.at<float>(dc)); }};
}

Subject multiply(Gpu& gpu) {
  constexpr uint32_t n = 256;
  auto a = std::make_shared<std::vector<float>>(ramp(n * n)),
       want = std::make_shared<std::vector<float>>(n * n);
  const uint64_t da = upload(gpu, *a), dc = gpu.alloc(n * n * 4);
  return {"tiled matrix product, 256 x 256", 30,
          [&gpu, da, dc] {
            return gpu.run("multiply_tiled", {n / 16, n / 16, 1}, {16, 16, 1}, da, da, dc, n);
          },
          [a, want] {
            std::fill(want->begin(), want->end(), 0.0f);
            for (uint32_t i = 0; i < n; ++i)
              for (uint32_t k = 0; k < n; ++k)
                for (uint32_t j = 0; j < n; ++j)
                  (*want)[i * n + j] += (*a)[i * n + k] * (*a)[k * n + j];
          },
          [&gpu, dc, want] { return close(*want, gpu.at<float>(dc)); }};
}

Subject mandelbrot(Gpu& gpu) {
  constexpr uint32_t width = 512, limit = 100;
  auto want = std::make_shared<std::vector<float>>(width * width);
  const uint64_t dc = gpu.alloc(width * width * 4);
  return {
      "Mandelbrot, 512 x 512, 100 iterations", 12,
      [&gpu, dc] {
        return gpu.run("mandelbrot", {width / 16, width / 16, 1}, {16, 16, 1}, dc, width, limit);
      },
      [want] {
        for (uint32_t i = 0; i < width * width; ++i) {
          const float cr = -2.0f + 3.0f * static_cast<float>(i % width) / width,
                      ci = -1.5f + 3.0f * static_cast<float>(i / width) / width;
          float zr = 0, zi = 0;
          uint32_t k = 0;
          for (; k < limit && zr * zr + zi * zi < 4.0f; ++k) {
            const float next = zr * zr - zi * zi + cr;
            zi = 2.0f * zr * zi + ci, zr = next;
          }
          (*want)[i] = static_cast<float>(k);
        }
      },
      [&gpu, dc, want] {  // the kernel fuses, the loop may not: points on the edge differ
        uint32_t different = 0;
        for (uint32_t i = 0; i < width * width; ++i)
          different += gpu.at<uint32_t>(dc)[i] != static_cast<uint32_t>((*want)[i]);
        return different < width * width / 50;
      }};
}

Subject chain(Gpu& gpu) {
  constexpr uint32_t threads = 1u << 15, rounds = 256;
  auto want = std::make_shared<std::vector<float>>(threads);
  const uint64_t dc = gpu.alloc(threads * 4);
  return {
      "FMA chain", 16,
      [&gpu, dc] {
        return gpu.run("fma_chain", {threads / 256, 1, 1}, {256, 1, 1}, dc, 0.75f, 0.5f, rounds);
      },
      [want] {
        for (uint32_t i = 0; i < threads; ++i) {
          float v[4];
          for (int k = 0; k < 4; ++k) v[k] = static_cast<float>(i) + static_cast<float>(k);
          for (uint32_t r = 0; r < rounds; ++r)
            for (float& x : v) x = x * 0.75f + 0.5f;
          (*want)[i] = v[0] + v[1] + v[2] + v[3];
        }
      },
      [&gpu, dc, want] { return close(*want, gpu.at<float>(dc)); }};
}

struct Cost {
  double wall = 1e9, cpu = 1e9;
};
double clock_seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
void time(Cost& best, const std::function<void()>& work) {
  const double wall = clock_seconds(CLOCK_MONOTONIC), cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  work();
  best.wall = std::min(best.wall, clock_seconds(CLOCK_MONOTONIC) - wall);
  best.cpu = std::min(best.cpu, clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
}

// Runs both in turns and takes the best of several, so that a busy moment does not hit only one of
// them. The ratio uses processor time, which other programs disturb least.
bool measure(const Subject& s, bool check) {
  LaunchResult counts;
  Cost simulated, plain;
  for (int i = 0; i < kRounds; ++i) {
    time(simulated, [&] { counts = s.simulate(); });
    time(plain, s.plain);
  }
  const double ratio = simulated.cpu / plain.cpu,
               instructions = static_cast<double>(counts.thread_instructions) / 1e9;
  const bool right = s.agree(), fast = ratio <= s.limit;
  std::printf(
      "%-38s G thread instructions: %5.2f/s, %5.2f per CPU second; %6.2f ms CPU, plain loop %6.2f "
      "ms, ratio %4.1f (limit %.0f)%s%s\n",
      s.name, instructions / simulated.wall, instructions / simulated.cpu, simulated.cpu * 1e3,
      plain.cpu * 1e3, ratio, s.limit, right ? "" : "  WRONG RESULT",
      check && !fast ? "  TOO SLOW" : "");
  return right && (fast || !check);
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc > 1 && !std::strcmp(argv[1], "--check");
  const char* word = argc > 1 && !check ? argv[1] : "";  // part of the name; none: all
  bool good = true;
  for (auto make : {&vector_add, &reduce, &multiply, &mandelbrot, &chain}) {
    Gpu gpu;
    const Subject subject = make(gpu);
    if (std::strstr(subject.name, word)) good &= measure(subject, check);
  }
  return good ? 0 : 1;
}
