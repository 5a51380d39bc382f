// SPDX-License-Identifier: Apache-2.0
// A network of two layers learns what another one does: batches from pinned memory, gradients, and
// a loss that is read back now and then. All bits are the same on every run. Arguments: steps
// (default 200), and a file for the weights (default: none).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr uint32_t kRows = 96, kInputs = 256, kHidden = 16, kOutputs = 4;
constexpr float kRate = 0.002f;
constexpr long kStepsPerLoss = 10;

class Numbers {
 public:
  float next() {  // from -1 to 1
    state_ = state_ * 1664525 + 1013904223;
    return static_cast<float>(static_cast<int32_t>(state_)) / 2147483648.0f;
  }
  std::vector<float> some(size_t count, float scale) {
    std::vector<float> values(count);
    for (float& value : values) value = next() * scale;
    return values;
  }

 private:
  uint32_t state_ = 4711;
};

struct Network {
  CUfunction dense = nullptr, dense_errors = nullptr, dense_learn = nullptr, subtract = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr batch = 0, targets = 0, hidden = 0, results = 0, hidden_errors = 0;
  CUdeviceptr first = 0, second = 0;  // the weights
};

CUresult over(const Network& network, CUfunction function, uint32_t threads, auto... arguments) {
  return program::launch(function, (threads + 127) / 128, 128, network.stream, arguments...);
}

Network make(Numbers* numbers) {
  Network made;
  made.dense = program::load(kKernelsPtx, "dense");
  made.dense_errors = program::load(kKernelsPtx, "dense_errors");
  made.dense_learn = program::load(kKernelsPtx, "dense_learn");
  made.subtract = program::load(kKernelsPtx, "subtract");
  CHECK(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
  made.first = program::upload(numbers->some(kInputs * kHidden, 0.1f));
  made.second = program::upload(numbers->some(kHidden * kOutputs, 0.3f));
  CHECK(cuMemAlloc(&made.batch, kRows * kInputs * sizeof(float)));
  CHECK(cuMemAlloc(&made.targets, kRows * kOutputs * sizeof(float)));
  CHECK(cuMemAlloc(&made.results, kRows * kOutputs * sizeof(float)));
  CHECK(cuMemAlloc(&made.hidden, kRows * kHidden * sizeof(float)));
  CHECK(cuMemAlloc(&made.hidden_errors, kRows * kHidden * sizeof(float)));
  return made;
}

// The one that is to be learned: a sum of each quarter of the inputs.
void fill(Numbers* numbers, float* batch, float* targets) {
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t k = 0; k < kOutputs; ++k) targets[row * kOutputs + k] = 0;
    for (uint32_t k = 0; k < kInputs; ++k) {
      const float value = numbers->next();
      batch[row * kInputs + k] = value;
      targets[row * kOutputs + k * kOutputs / kInputs] += value * 0.25f;
    }
  }
}

void step(const Network& the) {
  const uint32_t no = 0, yes = 1;
  CHECK(over(the, the.dense, kRows * kHidden, the.batch, the.first, the.hidden, kRows, kInputs,
             kHidden, yes));
  CHECK(over(the, the.dense, kRows * kOutputs, the.hidden, the.second, the.results, kRows, kHidden,
             kOutputs, no));
  CHECK(over(the, the.subtract, kRows * kOutputs, the.results, the.targets, kRows * kOutputs));
  CHECK(over(the, the.dense_errors, kRows * kHidden, the.results, the.second, the.hidden,
             the.hidden_errors, kRows, kHidden, kOutputs));
  CHECK(over(the, the.dense_learn, kHidden * kOutputs, the.hidden, the.results, the.second, kRows,
             kHidden, kOutputs, kRate));
  CHECK(over(the, the.dense_learn, kInputs * kHidden, the.batch, the.hidden_errors, the.first,
             kRows, kInputs, kHidden, kRate));
}

double loss_of(const Network& network) {
  CHECK(cuStreamSynchronize(network.stream));
  double loss = 0;
  for (const float error : program::download<float>(network.results, kRows * kOutputs))
    loss += static_cast<double>(error) * error;
  return loss / (kRows * kOutputs);
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 200);
  program::use_device(0);
  Numbers numbers;
  const Network network = make(&numbers);
  void *batch = nullptr, *targets = nullptr;
  CHECK(cuMemAllocHost(&batch, kRows * kInputs * sizeof(float)));
  CHECK(cuMemAllocHost(&targets, kRows * kOutputs * sizeof(float)));
  double first_loss = 0, loss = 0;
  for (long i = 0; i < steps; ++i) {
    CHECK(cuStreamSynchronize(network.stream));
    fill(&numbers, static_cast<float*>(batch), static_cast<float*>(targets));
    CHECK(cuMemcpyHtoDAsync(network.batch, batch, kRows * kInputs * sizeof(float), network.stream));
    CHECK(cuMemcpyHtoDAsync(network.targets, targets, kRows * kOutputs * sizeof(float),
                            network.stream));
    step(network);
    if (i % kStepsPerLoss != 0 && i + 1 != steps) continue;
    loss = loss_of(network);
    if (i == 0) first_loss = loss;
    std::printf("step %ld: loss %.17g\n", i, loss);
  }
  std::vector<float> weights = program::download<float>(network.first, kInputs * kHidden);
  const std::vector<float> second = program::download<float>(network.second, kHidden * kOutputs);
  weights.insert(weights.end(), second.begin(), second.end());
  std::printf("%zu weights, checksum %016llx\n", weights.size(),
              static_cast<unsigned long long>(program::checksum(weights)));
  if (argc > 2) {
    std::FILE* file = std::fopen(argv[2], "wb");
    if (file == nullptr || std::fwrite(weights.data(), 4, weights.size(), file) != weights.size())
      program::fail("cannot write the weights");
    std::fclose(file);
  }
  return program::finish(loss < first_loss / 2);
}
