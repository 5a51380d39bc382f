# SPDX-License-Identifier: Apache-2.0
"""JAX on all GPUs of one program under tools/gpu/meters.py: the loop of jax_workloads.py, data
parallel by pmap and by shard_map."""

import functools

import jax_workloads
import meter

jax, jnp = jax_workloads.jax, jax_workloads.jnp
P = jax.sharding.PartitionSpec
DEVICES = jax.local_devices()
TOKENS = (8, 512)  # of each device


def mean_update(weights, batch):
    value, slope = jax.value_and_grad(jax_workloads.loss)(weights, batch)
    slope = jax.lax.pmean(slope, "gpus")
    weights = jax.tree.map(lambda a, b: a - 0.1 * b, weights, slope)
    return weights, jax.lax.pmean(value, "gpus")


def batch_of_all():
    key = jax.random.PRNGKey(4)
    return jax.random.randint(key, (len(DEVICES), *TOKENS), 0, jax_workloads.WORDS)


def stepping(update, weights, batch):
    held = [weights]

    def step():
        held[0], value = update(held[0], batch)
        return float(value.ravel()[0])

    return step


def mapped():
    batch, weights = batch_of_all(), jax_workloads.parameters()
    copies = jax.tree.map(lambda value: jnp.stack([value] * len(DEVICES)), weights)
    return stepping(jax.pmap(mean_update, axis_name="gpus"), copies, batch)


def sharded():
    mesh = jax.sharding.Mesh(DEVICES, ("gpus",))
    place = lambda value, spec: jax.device_put(value, jax.sharding.NamedSharding(mesh, spec))
    update = functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(P(), P("gpus")), out_specs=(P(), P())
    )(lambda weights, batch: mean_update(weights, batch[0]))
    weights = jax.tree.map(lambda value: place(value, P()), jax_workloads.parameters())
    return stepping(jax.jit(update), weights, place(batch_of_all(), P("gpus")))


def synchronize():
    """Every step has read its loss."""


meter.Meter({"jax-pmap-8x512": mapped, "jax-shard-map-8x512": sharded}, synchronize).serve()
