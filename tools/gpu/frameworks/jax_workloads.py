# SPDX-License-Identifier: Apache-2.0
"""A training loop of JAX, for checks and measurements: a transformer in plain arrays, with its
layers in one scan. Each step's loss is read."""

import checks

jax = checks.need("jax")
jnp = jax.numpy
if checks.DEVICE == "cpu":
    jax.config.update("jax_platforms", "cpu")
LAYERS, WIDTH, HEADS, WORDS = 12, 768, 12, 8192


def parameters():
    keys = iter(jax.random.split(jax.random.PRNGKey(3), 8))

    def normal(*shape):
        return jax.random.normal(next(keys), shape, dtype=jnp.float32) * 0.02

    return {
        "words": normal(WORDS, WIDTH),
        "mixed": normal(LAYERS, WIDTH, 3 * WIDTH),
        "out": normal(LAYERS, WIDTH, WIDTH),
        "up": normal(LAYERS, WIDTH, 4 * WIDTH),
        "down": normal(LAYERS, 4 * WIDTH, WIDTH),
    }


def normalised(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(x, weights):
    count, length, _ = x.shape
    q, k, v = jnp.split(normalised(x) @ weights["mixed"], 3, axis=-1)
    heads = [part.reshape(count, length, HEADS, WIDTH // HEADS) for part in (q, k, v)]
    x = x + jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(normalised(x) @ weights["up"]) @ weights["down"], None


def loss(weights, batch):
    half = jax.tree.map(lambda value: value.astype(jnp.bfloat16), weights)
    x, _ = jax.lax.scan(
        layer,
        half["words"][batch],
        {name: value for name, value in half.items() if name != "words"},
    )
    logits = (normalised(x) @ half["words"].T).astype(jnp.float32)
    aim = jnp.roll(batch, -1, axis=1)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), aim[..., None], axis=-1).mean()


def transformer_train(count, length):
    batch = jax.random.randint(jax.random.PRNGKey(4), (count, length), 0, WORDS)
    held = [parameters()]

    @jax.jit
    def update(weights):
        value, slope = jax.value_and_grad(loss)(weights, batch)
        return jax.tree.map(lambda a, b: a - 0.1 * b, weights, slope), value

    def step():
        held[0], value = update(held[0])
        return float(value)

    return step
