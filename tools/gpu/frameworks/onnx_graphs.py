# SPDX-License-Identifier: Apache-2.0
"""The models of onnx_models.py, written node by node with onnx.helper. Their weights come from
seeds, so nothing is downloaded.

Each model has values for its inputs and shapes for its outputs. The checker of onnx does not
know the domain com.microsoft (ONNX Runtime's own operators) and leaves it alone.
"""

import dataclasses

import numpy
import onnx
from onnx import helper, numpy_helper

OWN = "com.microsoft"
SINGLE, HALF = numpy.float32, numpy.float16


def values(seed, *shape, kind=SINGLE):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=SINGLE).astype(kind)


def small(seed, *shape, kind=SINGLE):
    """Weights of a layer. Its results are about as large as its input."""
    fan_in = shape[0] if len(shape) < 3 else int(numpy.prod(shape[1:]))
    return (values(seed, *shape) / SINGLE(fan_in**0.5)).astype(kind)


def node(kind, inputs, outputs, **attributes):
    """Names of inputs and outputs are words of one text. `-` is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), **attributes)


@dataclasses.dataclass
class Model:
    nodes: list
    inputs: dict  # name: values to run it with
    outputs: dict  # name: shape; or an array, whose type the output has too
    weights: dict = dataclasses.field(default_factory=dict)
    open_axis: int = -1  # of inputs and outputs, where the model takes any length

    def shape(self, array):
        return [
            "any" if axis == self.open_axis else length for axis, length in enumerate(array.shape)
        ]

    def text(self):
        """The serialized model."""
        first = next(iter(self.inputs.values()))
        outputs = {
            name: like if hasattr(like, "dtype") else numpy.empty(like, first.dtype)
            for name, like in self.outputs.items()
        }
        described = lambda arrays: [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), self.shape(array)
            )
            for name, array in arrays.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            described(self.inputs),
            described(outputs),
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(OWN, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        return model.SerializeToString()


def perceptron(kind=SINGLE, width=256, open_axis=-1):
    nodes = [
        node("Gemm", "x w1 b1", "h"),
        node("Relu", "h", "r"),
        node("MatMul", "r w2", "m"),
        node("Tanh", "m", "t"),
        node("Softmax", "t", "y"),
    ]
    weights = {
        "w1": small(1, width, 512, kind=kind),
        "b1": values(2, 512, kind=kind),
        "w2": small(3, 512, width, kind=kind),
    }
    return Model(
        nodes, {"x": values(4, 32, width, kind=kind)}, {"y": [32, width]}, weights, open_axis
    )


def convolutions(kind=SINGLE):
    """Plain, grouped and transposed convolutions with what stands around them."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 scale shift mean variance", "n"),
        node("Relu", "n", "r1"),
        node("MaxPool", "r1", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2", "c2", pads=[1, 1, 1, 1], group=32),
        node("Relu", "c2", "r2"),
        node("ConvTranspose", "r2 w3", "c3", strides=[2, 2]),
        node("Add", "c3 c1", "a"),
        node("GlobalAveragePool", "a", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f w4", "y"),
    ]
    of_channels = {
        name: values(seed, 32, kind=kind)
        for seed, name in enumerate(("b1", "scale", "shift", "mean"), 10)
    }
    weights = of_channels | {
        "variance": numpy.abs(values(14, 32, kind=kind)) + kind(0.5),
        "w1": small(15, 32, 3, 3, 3, kind=kind),
        "w2": small(16, 32, 1, 3, 3, kind=kind),
        "w3": small(17, 32, 32, 2, 2, kind=kind),
        "w4": small(18, 32, 10, kind=kind),
    }
    return Model(nodes, {"x": values(19, 4, 3, 64, 64, kind=kind)}, {"y": [4, 10]}, weights)


def attention(kind=SINGLE, batch=2, length=48, heads=4, depth=32):
    """A transformer's block out of plain operators, as exporters write it."""
    width = heads * depth
    nodes = [
        node("LayerNormalization", "x scale1 shift1", "n1"),
        node("MatMul", "n1 wqkv", "qkv"),
        node("Split", "qkv", "q k v", axis=2),
    ]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("Reshape", f"{name} split", f"{name}s"),
            node("Transpose", f"{name}s", f"{name}t", perm=order),
        ]
    nodes += [
        node("MatMul", "qt kt", "products"),
        node("Mul", "products scale", "scaled"),
        node("Add", "scaled mask", "masked"),
        node("Softmax", "masked", "shares", axis=3),
        node("MatMul", "shares vt", "mixed"),
        node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        node("Reshape", "back joined", "together"),
        node("MatMul", "together wo", "out"),
        node("Add", "x out", "first"),
        node("LayerNormalization", "first scale2 shift2", "n2"),
        node("MatMul", "n2 wup", "up"),
        node("Div", "up root2", "divided"),
        node("Erf", "divided", "erf"),
        node("Add", "erf one", "more"),
        node("Mul", "up more", "gated"),
        node("Mul", "gated half", "gelu"),
        node("MatMul", "gelu wdown", "down"),
        node("Add", "first down", "y"),
    ]
    # -1e4 stands for no attention: half precision holds it
    mask = numpy.triu(numpy.full((length, length), -1e4), 1)
    numbers = {"scale": depth**-0.5, "root2": 2**0.5, "one": 1, "half": 0.5, "mask": mask}
    weights = {name: numpy.array(value, dtype=kind) for name, value in numbers.items()} | {
        "split": numpy.array([0, 0, heads, depth]),
        "joined": numpy.array([0, 0, width]),
        "wqkv": small(20, width, 3 * width, kind=kind),
        "wo": small(21, width, width, kind=kind),
        "wup": small(22, width, 4 * width, kind=kind),
        "wdown": small(23, 4 * width, width, kind=kind),
    }
    for seed, name in enumerate(("scale1", "shift1", "scale2", "shift2"), 24):
        weights[name] = values(seed, width, kind=kind)
    return Model(
        nodes,
        {"x": values(28, batch, length, width, kind=kind)},
        {"y": [batch, length, width]},
        weights,
    )


def recurrent(kind=SINGLE, length=20, batch=4, width=32, hidden=48):
    """cuDNN's LSTM in both directions, then a GRU."""
    nodes = [
        node("LSTM", "x wl rl bl", "l h c", hidden_size=hidden, direction="bidirectional"),
        node("Transpose", "l", "t", perm=[0, 2, 1, 3]),
        node("Reshape", "t joined", "j"),
        node("GRU", "j wg rg bg", "g y", hidden_size=hidden, linear_before_reset=1),
    ]
    weights = {
        "wl": small(30, 2, 4 * hidden, width, kind=kind),
        "rl": small(31, 2, 4 * hidden, hidden, kind=kind),
        "bl": values(32, 2, 8 * hidden, kind=kind),
        "wg": small(33, 1, 3 * hidden, 2 * hidden, kind=kind),
        "rg": small(34, 1, 3 * hidden, hidden, kind=kind),
        "bg": values(35, 1, 6 * hidden, kind=kind),
        "joined": numpy.array([0, 0, 2 * hidden]),
    }
    outputs = {"h": [2, batch, hidden], "c": [2, batch, hidden], "y": [1, batch, hidden]}
    return Model(nodes, {"x": values(36, length, batch, width, kind=kind)}, outputs, weights)


MODELS = {
    f"{name}_{word}": (make, kind)
    for word, kind in (("single", SINGLE), ("half", HALF))
    for name, make in (
        ("perceptron", perceptron),
        ("convolutions", convolutions),
        ("attention", attention),
        ("recurrent", recurrent),
    )
}


def one(kind, inputs, outputs, weights=None, domain="", open_axis=-1, **attributes):
    """A model of one operator: its inputs in order, those in `weights` being constants."""
    weights = weights or {}
    names = {name: array for name, array in inputs.items() if array is not None}
    listed = " ".join(
        name if name in names or name in weights else "-" for name in inputs | weights
    )
    operator = node(kind, listed, " ".join(outputs), domain=domain, **attributes)
    return Model([operator], names, outputs, weights, open_axis)


def of_type(kind, *shape):
    return numpy.empty(shape, kind)


def operators():
    """Single operators beside those of the models: sorting, scans, indices, reductions, results of
    unknown size."""
    x, integers = values(40, 6, 50), numpy.array
    return {
        "TopK": one(
            "TopK", {"x": x}, {"y": [6, 7], "i": of_type(numpy.int64, 6, 7)}, {"k": integers([7])}
        ),
        "CumSum": one("CumSum", {"x": x}, {"y": [6, 50]}, {"axis": integers(1)}),
        "ArgMax": one("ArgMax", {"x": x}, {"i": of_type(numpy.int64, 6, 1)}, axis=1),
        "ReduceMean": one("ReduceMean", {"x": x}, {"y": [6, 1]}, axes=[1]),
        "ReduceLogSumExp": one("ReduceLogSumExp", {"x": x}, {"y": [1, 50]}, axes=[0]),
        "NonZero": one(
            "NonZero", {"x": numpy.maximum(x, 0)}, {"i": of_type(numpy.int64, 2, 300)}, open_axis=1
        ),
        "GatherND": one("GatherND", {"x": x}, {"y": [3, 50]}, {"i": integers([[5], [0], [3]])}),
        "ScatterND": one(
            "ScatterND", {"x": x, "i": integers([[1], [4]]), "u": values(41, 2, 50)}, {"y": [6, 50]}
        ),
        "Resize": one(
            "Resize",
            {"x": values(42, 1, 3, 8, 8)},
            {"y": [1, 3, 16, 16]},
            {"roi": of_type(SINGLE, 0), "scales": integers([1, 1, 2, 2], dtype=SINGLE)},
            mode="linear",
        ),
        "Einsum": one(
            "Einsum",
            {"a": values(43, 4, 5, 6), "b": values(44, 4, 6, 7)},
            {"y": [4, 5, 7]},
            equation="bij,bjk->bik",
        ),
        "InstanceNormalization": one(
            "InstanceNormalization",
            {"x": values(45, 2, 3, 16, 16)},
            {"y": [2, 3, 16, 16]},
            {"scale": values(46, 3), "shift": values(47, 3)},
        ),
        "double": one(
            "MatMul",
            {
                "a": values(48, 40, 30).astype(numpy.float64),
                "b": values(49, 30, 20).astype(numpy.float64),
            },
            {"y": [40, 20]},
        ),
        "RandomNormalLike": one("RandomNormalLike", {"x": x}, {"y": [6, 50]}, seed=7.0),
    }


def own_operators():
    """Operators with kernels of ONNX Runtime's own."""
    heads, depth = 4, 64
    return {**attention(heads, depth), **packed_and_mixed(heads * depth)}


def attention(heads, depth):
    """Its kinds of attention, and fused layers."""
    batch, length = 2, 64
    width = heads * depth
    qkv = lambda kind, *shape: {
        name: small(seed, *shape, kind=kind) for seed, name in enumerate("qkv", 50)
    }
    attend = lambda kind: one(
        "MultiHeadAttention",
        qkv(kind, batch, length, width),
        {"y": [batch, length, width]},
        domain=OWN,
        num_heads=heads,
    )
    grouped = {
        name: values(53, batch, length, size, kind=HALF)
        for name, size in (("q", width), ("k", width // 2), ("v", width // 2))
    }
    grouped |= {
        "past_key": None,
        "past_value": None,
        "lengths": numpy.full((batch,), length - 1, dtype=numpy.int32),
        "total": numpy.array(length, dtype=numpy.int32),
    }
    kept = [batch, heads // 2, length, depth]
    layer = {"gamma": values(57, width, kind=HALF), "beta": values(58, width, kind=HALF)}
    return {
        "MultiHeadAttention_half": attend(HALF),
        "MultiHeadAttention_single": attend(SINGLE),
        "GroupQueryAttention": one(
            "GroupQueryAttention",
            grouped,
            {"y": [batch, length, width], "present_key": kept, "present_value": kept},
            domain=OWN,
            num_heads=heads,
            kv_num_heads=heads // 2,
        ),
        "SkipLayerNormalization": one(
            "SkipLayerNormalization",
            {
                "x": values(55, batch, length, width, kind=HALF),
                "skip": values(56, batch, length, width, kind=HALF),
            },
            {"y": [batch, length, width]},
            layer,
            domain=OWN,
        ),
        "FastGelu": one(
            "FastGelu",
            {"x": values(61, 64, width, kind=HALF)},
            {"y": [64, width]},
            {"b": values(62, width, kind=HALF)},
            domain=OWN,
        ),
    }


def packed_and_mixed(width):
    """Packed weights, experts, FFT."""
    tokens, experts, inner = 24, 4, 128
    packed = {
        "b": (
            numpy.random.default_rng(59).integers(0, 256, (96, width // 32, 16), dtype=numpy.uint8)
        ),
        "scales": numpy.abs(small(60, 96, width // 32, kind=HALF)),
    }
    return {
        "MatMulNBits": one(
            "MatMulNBits",
            {"a": values(63, 1, width, kind=HALF)},
            {"y": [1, 96]},
            packed,
            domain=OWN,
            K=width,
            N=96,
            bits=4,
            block_size=32,
        ),
        "MoE": one(
            "MoE",
            {
                "x": values(64, tokens, width, kind=HALF),
                "router": values(65, tokens, experts, kind=HALF),
            },
            {"y": [tokens, width]},
            {
                "w1": small(66, experts, inner, width, kind=HALF),
                "b1": values(67, experts, inner, kind=HALF),
                "w2": small(68, experts, width, inner, kind=HALF),
                "b2": values(69, experts, width, kind=HALF),
            },
            domain=OWN,
            k=2,
            activation_type="relu",
            normalize_routing_weights=1,
        ),
        "Rfft": one(
            "Rfft",
            {"x": values(70, 4, 128)},
            {"y": [4, 65, 2]},
            domain=OWN,
            signal_ndim=1,
            onesided=1,
            normalized=0,
        ),
    }
