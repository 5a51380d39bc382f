# SPDX-License-Identifier: Apache-2.0
"""JAX: jitted functions, a gradient, a scan and a loop of steps on the device."""
import jax
import jax.numpy as jnp

key = jax.random.PRNGKey(12)
x = jax.random.normal(key, (1024, 1024), dtype=jnp.float32)
f = jax.jit(lambda a: jnp.tanh(a @ a).sum())
print(repr(float(f(x))))
g = jax.jit(jax.grad(lambda a: jnp.square(jnp.tanh(a)).mean()))
print(repr(float(jnp.abs(g(x)).max())))
for _ in range(20):
    x = jax.jit(lambda a: a * 0.5 + 0.25)(x)
print(repr(float(x.mean())))
carry, out = jax.lax.scan(lambda c, v: (c * 0.9 + v, c.sum()), jnp.zeros(16), jnp.ones((50, 16)))
print(repr(float(carry.sum())), repr(float(out[-1])))
print(jax.devices()[0].platform, len(jax.devices()))
