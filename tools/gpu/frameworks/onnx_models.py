# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's CUDA provider, with the models of onnx_graphs.py.

No session may put a node on the processor (`session.disable_cpu_ep_fallback`) or start again
there (enable_fallback). By itself ONNX Runtime would go on without the GPU; here a provider
that does not work fails. `nodes_of` shows who ran each node.
"""

import json
import os
import sys
import tempfile
import threading

import checks
from checks import check, check_each

runtime = checks.need("onnxruntime")
checks.need("onnx")
import numpy  # noqa: E402
import onnx_graphs as graphs  # noqa: E402

ON_CPU = checks.DEVICE == "cpu"
PROVIDER = "CPUExecutionProvider" if ON_CPU else "CUDAExecutionProvider"
if PROVIDER not in runtime.get_available_providers():
    checks.skip(f"onnxruntime {runtime.__version__} has no {PROVIDER}")
if not ON_CPU:
    # CUDA's libraries from the packages that pip installs. It names those that it does not find.
    runtime.preload_dlls()
runtime.set_default_logger_severity(4)  # what fails is an exception, and here a result
# Convolutions as cuDNN's heuristics choose them. By default they are timed, and another choice may
# give another last digit.
REPEATABLE = {} if ON_CPU else {"cudnn_conv_algo_search": "HEURISTIC"}


def session(model, provider=PROVIDER, profile="", shared_memory=False, **options):
    settings = runtime.SessionOptions()
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.use_env_allocators", str(int(shared_memory)))
    if provider != "CPUExecutionProvider":
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if profile:
        settings.enable_profiling, settings.profile_file_prefix = True, profile
    chosen = (REPEATABLE if provider == PROVIDER else {}) | {
        name: str(value) for name, value in options.items()
    }
    return runtime.InferenceSession(
        model.text(), settings, providers=[(provider, chosen)], enable_fallback=0
    )


def need_provider():
    """Ends this program with an error if no session begins: then there is nothing to compare,
    and no check says better why."""
    try:
        session(graphs.perceptron())
    except Exception as error:
        print(f"{PROVIDER} does not start: {checks.error_line(error)}", flush=True)
        sys.exit(1)


def results(model, **options):
    return session(model, **options).run(None, model.inputs)


def is_near(model, found):
    """Whether the CPU provider, which computes otherwise, gets about the same."""
    expected = results(model, provider="CPUExecutionProvider")
    pairs = [
        (mine.astype(numpy.float64), its.astype(numpy.float64))
        for mine, its in zip(found, expected)
    ]
    return all(
        mine.shape == its.shape
        and numpy.abs(mine - its).max() <= 0.02 * max(1, numpy.abs(its).max())
        for mine, its in pairs
    )


def only_on_gpu():
    if ON_CPU:
        raise checks.Skipped("no GPU")


def stepped(model, step):
    """Other values for the same shapes."""
    return {name: array * array.dtype.type(1 + step / 8) for name, array in model.inputs.items()}


@check
def providers():
    ready = session(graphs.perceptron())
    told = ready.get_provider_options().get(PROVIDER, {})
    return ready.get_providers(), [
        told.get(name) for name in ("device_id", "use_tf32", "arena_extend_strategy")
    ]


@check_each(**graphs.MODELS)
def nodes_of(case):
    """Which provider ran which node, out of ONNX Runtime's own profile."""
    model = case[0](case[1])
    with tempfile.TemporaryDirectory() as folder:
        ready = session(model, profile=os.path.join(folder, "profile"))
        ready.run(None, model.inputs)
        with open(ready.end_profiling(), encoding="utf-8") as file:
            events = json.load(file)
    ran = {}
    for event in events:
        if event.get("cat") == "Node" and "provider" in event.get("args", {}):
            ran.setdefault(event["args"]["provider"], set()).add(event["args"]["op_name"])
    return {provider: ",".join(sorted(names)) for provider, names in sorted(ran.items())}


@check_each(**graphs.MODELS)
def model(case):
    made = case[0](case[1])
    ready = session(made)
    found = [ready.run(None, stepped(made, step)) for step in range(3)]
    again = ready.run(None, made.inputs)
    same = all(numpy.array_equal(first, second) for first, second in zip(found[0], again))
    return "near" if is_near(made, again) else "FAR from the CPU's", f"repeats {same}", found


@check
def convolutions_by_time():
    """Algorithms that cuDNN times, which is the default: results are only about the same."""
    made = graphs.convolutions()
    options = {} if ON_CPU else {"cudnn_conv_algo_search": "EXHAUSTIVE"}
    return "near" if is_near(made, results(made, **options)) else "FAR from the CPU's"


@check_each(**graphs.operators())
def operator(made):
    return results(made)


@check_each(**graphs.own_operators())
def own_operator(made):
    return results(made)


@check
def bound_to_the_device():
    """Input and output stay on the device. One run's output is the next one's input."""
    made = graphs.perceptron()
    ready = session(made)
    binding = ready.io_binding()
    current = runtime.OrtValue.ortvalue_from_numpy(made.inputs["x"], checks.DEVICE, 0)
    for _ in range(3):
        binding.bind_ortvalue_input("x", current)
        binding.bind_output("y", checks.DEVICE)
        ready.run_with_iobinding(binding)
        current = binding.get_outputs()[0]
    return current.numpy(), current.device_name(), current.shape()


@check
def bound_to_own_memory():
    """The program's own output, copied between values on the device."""
    made = graphs.attention()
    ready, shape = session(made), made.outputs["y"]
    binding = ready.io_binding()
    outputs = [
        runtime.OrtValue.ortvalue_from_shape_and_type(shape, numpy.float32, checks.DEVICE, 0)
        for _ in range(2)
    ]
    x = runtime.OrtValue.ortvalue_from_numpy(made.inputs["x"], checks.DEVICE, 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", outputs[0])
    out = []
    for step in range(3):
        x.update_inplace(stepped(made, step)["x"])
        ready.run_with_iobinding(binding)
        outputs[1].update_inplace(outputs[0].numpy())
        out.append(outputs[1].numpy().copy())
    return out


def graph_session(made):
    only_on_gpu()
    return session(made, enable_cuda_graph=1)


def captured(ready, made, name, number=None, steps=4):
    """The first run captures the graph. The next ones launch it with other values in the same
    memory."""
    x = runtime.OrtValue.ortvalue_from_numpy(made.inputs["x"], "cuda", 0)
    y = runtime.OrtValue.ortvalue_from_shape_and_type(
        made.outputs[name], made.inputs["x"].dtype, "cuda", 0
    )
    binding, options = ready.io_binding(), runtime.RunOptions()
    if number is not None:
        options.add_run_config_entry("gpu_graph_id", str(number))
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output(name, y)
    for step in range(steps):
        x.update_inplace(stepped(made, step)["x"])
        binding.synchronize_inputs()
        ready.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        yield y.numpy().copy()


@check_each(
    perceptron=graphs.perceptron, convolutions=graphs.convolutions, attention=graphs.attention
)
def cuda_graph(make):
    made = make()
    found = list(captured(graph_session(made), made, "y"))
    plain = session(made)
    same = [
        numpy.array_equal(mine, plain.run(None, stepped(made, step))[0])
        for step, mine in enumerate(found)
    ]
    return found, "as without a graph", same


@check
def cuda_graphs_by_number():
    """One session, a graph for each shape, by turns."""
    made = graphs.perceptron(open_axis=0)
    ready = graph_session(made)
    turns = []
    for number, batch in enumerate((32, 8, 1), 1):
        part = graphs.Model(
            made.nodes, {"x": made.inputs["x"][:batch].copy()}, {"y": [batch, 256]}, made.weights
        )
        turns.append(captured(ready, part, "y", number))
    return [[next(turn) for turn in turns] for _ in range(4)]


def at_once(jobs):
    """Each job in a thread of its own; what they return, or the first exception."""
    found, failed = [None] * len(jobs), []

    def work(index):
        try:
            found[index] = jobs[index]()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


def last_of(ready, made, times=20):
    for step in range(times):
        found = ready.run(None, stepped(made, step % 3))
    return found


@check
def sessions_in_threads():
    """Two sessions with a stream each."""
    models = [graphs.attention(), graphs.convolutions()]
    return at_once([lambda made=made: last_of(session(made), made) for made in models])


@check
def one_session_in_threads():
    made = graphs.attention(graphs.HALF)
    ready = session(made)
    return at_once([lambda: last_of(ready, made)] * 4)


@check
def without_waiting():
    """run_async: a thread of ONNX Runtime's pool calls back."""
    made, told, arrived = graphs.perceptron(), [], threading.Event()
    ready = session(made)

    def done(found, _, error):
        told.append((found, error))
        arrived.set()

    ready.run_async(None, made.inputs, done, None)
    return "called back" if arrived.wait(30) else "NO CALL", told[0]


@check
def on_a_stream_of_torch():
    """One stream for PyTorch's work and the session's, with PyTorch's memory as input and
    output."""
    only_on_gpu()
    try:
        import torch
    except ModuleNotFoundError:
        raise checks.Skipped("no torch") from None
    made, stream = graphs.perceptron(), torch.cuda.Stream()
    ready = session(made, user_compute_stream=stream.cuda_stream)
    binding, options = ready.io_binding(), runtime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    with torch.cuda.stream(stream):
        x, y = torch.from_numpy(made.inputs["x"]).cuda(), torch.empty(32, 256, device="cuda")
        bound = lambda tensor: {
            "device_type": "cuda",
            "device_id": 0,
            "element_type": numpy.float32,
            "shape": tuple(tensor.shape),
            "buffer_ptr": tensor.data_ptr(),
        }
        binding.bind_input("x", **bound(x))
        binding.bind_output("y", **bound(y))
        for _ in range(5):
            ready.run_with_iobinding(binding, options)
            x.copy_(y * 100)
        stream.synchronize()
    return x, y


MIB = 1 << 20


@check
def limited_arena():
    """The arena has its own limit. What passes it is refused, and the session goes on."""
    only_on_gpu()
    made = graphs.perceptron(open_axis=0)
    ready = session(made, gpu_mem_limit=128 * MIB, arena_extend_strategy="kSameAsRequested")
    run = lambda batch: ready.run(None, {"x": numpy.ones((batch, 256), numpy.float32)})
    before = run(32)
    try:
        refused = "NOT REFUSED", run(96 * 1024)
    except Exception as error:
        refused = checks.error_line(error)
    return refused, "then as before", numpy.array_equal(before[0], run(32)[0])


@check
def shrinking_arena():
    """What the arena got for a large batch goes back to the device at the end of the run that
    asks for it."""
    only_on_gpu()
    made, options = graphs.perceptron(open_axis=0), runtime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
    ready = session(made)
    return [
        ready.run(None, {"x": graphs.values(81, batch, 256)}, options)
        for batch in (16 * 1024, 32, 16 * 1024)
    ]


@check
def more_than_the_device_has():
    only_on_gpu()
    try:
        runtime.OrtValue.ortvalue_from_shape_and_type([1 << 42], numpy.float32, "cuda", 0)
        refused = "NOT REFUSED"
    except Exception as error:
        refused = checks.error_line(error)
    return refused, results(graphs.perceptron())


@check
def sessions_one_after_another():
    """Made and dropped: what a session holds on the device goes with it."""
    made = graphs.convolutions()
    return [results(made) for _ in range(8)]


@check
def wrong_shape():
    try:
        return "NOT REFUSED", session(graphs.perceptron()).run(None, {"x": graphs.values(82, 3, 3)})
    except Exception as error:
        return checks.error_line(error)


@check
def wrong_device():
    only_on_gpu()
    try:
        return "NOT REFUSED", session(graphs.perceptron(), device_id=64).get_providers()
    except Exception as error:
        return checks.error_line(error)


@check
def shared_arena():
    """One arena of the process for two sessions, by turns. The last check, because what it
    registers stays with the process."""
    name = "Cpu" if ON_CPU else "Cuda"
    memory = runtime.OrtMemoryInfo(
        name, runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT
    )
    unset = {
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
        "arena_extend_strategy": 1,
    }
    limits = runtime.capi.onnxruntime_pybind11_state.OrtArenaCfg(unset | {"max_mem": 1024 * MIB})
    runtime.create_and_register_allocator_v2(PROVIDER, memory, {}, limits)
    models = [graphs.attention(), graphs.convolutions()]
    ready = [session(made, shared_memory=True) for made in models]
    return [
        one.run(None, stepped(made, step)) for step in range(3) for one, made in zip(ready, models)
    ]


need_provider()
checks.run()
