# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's CUDA provider: models written here with onnx.helper, no download; input and output bound to the device too."""
import checks
from checks import check

runtime = checks.need("onnxruntime")
onnx = checks.need("onnx")
import numpy  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

if "CUDAExecutionProvider" not in runtime.get_available_providers() and checks.DEVICE == "cuda":
    print("skip: this onnxruntime has no CUDA provider")
    raise SystemExit(checks.SKIP_STATUS)
FLOAT = TensorProto.FLOAT
PROVIDERS = ["CPUExecutionProvider"] if checks.DEVICE == "cpu" else ["CUDAExecutionProvider"]


def values(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32)


def session(nodes, inputs, outputs, weights, **options):
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    providers = [(PROVIDERS[0], options)] if options else PROVIDERS
    return runtime.InferenceSession(model.SerializeToString(), settings, providers=providers)


def perceptron(**options):
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    weights = {"w1": values(1, 256, 512), "b1": values(2, 512), "w2": values(3, 512, 100) * numpy.float32(0.05)}
    return session(nodes, {"x": [32, 256]}, ["y"], weights, **options)


@check
def provider():
    return perceptron().get_providers()[0]


@check
def matrices():
    ready, x = perceptron(), values(4, 32, 256)
    return [ready.run(None, {"x": x + step})[0] for step in range(3)]


@check
def convolutions():
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("GlobalAveragePool", ["p"], ["g"]), helper.make_node("Flatten", ["g"], ["y"])]
    options = {"cudnn_conv_algo_search": "DEFAULT"} if checks.DEVICE == "cuda" else {}
    ready = session(nodes, {"x": [4, 3, 64, 64]}, ["y"], {"w": values(5, 32, 3, 3, 3)}, **options)
    return ready.run(None, {"x": values(6, 4, 3, 64, 64)})


@check
def many_operators():
    nodes = [helper.make_node("LayerNormalization", ["x", "scale"], ["n"]), helper.make_node("Erf", ["n"], ["e"]),
             helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["n", "t"], ["m"]),
             helper.make_node("ReduceMean", ["m"], ["y"], axes=[1]), helper.make_node("CumSum", ["m", "axis"], ["z"])]
    weights = {"scale": values(7, 64), "axis": numpy.array(1, dtype=numpy.int64)}
    return session(nodes, {"x": [2, 50, 64]}, ["y", "z"], weights).run(None, {"x": values(8, 2, 50, 64)})


@check
def bound_to_the_device():
    ready, device = perceptron(), checks.DEVICE
    binding = ready.io_binding()
    x = runtime.OrtValue.ortvalue_from_numpy(values(9, 32, 256), device, 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", device)
    ready.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()[0], binding.get_outputs()[0].device_name()


@check
def in_a_cuda_graph():
    if checks.DEVICE == "cpu":
        raise checks.Skipped("no GPU")
    ready = perceptron(enable_cuda_graph="1")
    binding = ready.io_binding()
    x = runtime.OrtValue.ortvalue_from_numpy(values(10, 32, 256), "cuda", 0)
    y = runtime.OrtValue.ortvalue_from_shape_and_type([32, 100], numpy.float32, "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    out = []
    for step in range(3):
        x.update_inplace(values(10 + step, 32, 256))
        ready.run_with_iobinding(binding)
        out.append(y.numpy())
    return out


@check
def wrong_shape():
    try:
        return perceptron().run(None, {"x": values(11, 3, 3)})
    except Exception as error:
        return "refused", type(error).__name__


checks.run()
