# SPDX-License-Identifier: Apache-2.0
"""Libraries on top of JAX: a few steps of each."""

import checks
from checks import check

jax = checks.need("jax")
import jax.numpy as jnp  # noqa: E402

KEY = jax.random.PRNGKey(3)


@check
def flax_and_optax():
    nnx, optax = checks.want("flax.linen"), checks.want("optax")
    model = nnx.Sequential([nnx.Dense(64), nnx.relu, nnx.Dense(4)])
    x, y = jax.random.normal(KEY, (32, 16)), jnp.ones((32, 4))
    weights, steps = model.init(KEY, x), optax.adam(1e-2)
    state, losses = steps.init(weights), []

    @jax.jit
    def step(weights, state):
        cost = lambda w: ((model.apply(w, x) - y) ** 2).mean()
        loss, slope = jax.value_and_grad(cost)(weights)
        change, state = steps.update(slope, state)
        return optax.apply_updates(weights, change), state, loss

    for _ in range(5):
        weights, state, loss = step(weights, state)
        losses.append(float(loss))
    return losses


@check
def differential_equation():
    diffrax = checks.want("diffrax")
    field = diffrax.ODETerm(lambda t, y, _: jnp.stack([y[1], -jnp.sin(y[0])]))
    saved = diffrax.SaveAt(ts=jnp.linspace(0, 5, 20))
    out = diffrax.diffeqsolve(
        field, diffrax.Dopri5(), 0, 5, 0.01, jnp.array([1.0, 0.0]), saveat=saved
    )
    return out.ys


@check
def sampling():
    numpyro = checks.want("numpyro")
    dist, infer = checks.want("numpyro.distributions"), checks.want("numpyro.infer")
    seen = jax.random.normal(KEY, (100,)) + 2

    def model():
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        numpyro.sample("seen", dist.Normal(mean, 1), obs=seen)

    run = infer.MCMC(infer.NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
    run.run(KEY)
    return round(float(run.get_samples()["mean"].mean()), 3)


@check
def equinox_and_roots():
    equinox, optimistix = checks.want("equinox"), checks.want("optimistix")
    net = equinox.nn.MLP(2, 2, 32, 2, key=KEY)
    out = jax.vmap(net)(jax.random.normal(KEY, (16, 2)))
    solver = optimistix.Newton(rtol=1e-5, atol=1e-5)
    root = optimistix.root_find(lambda y, _: y**3 - 2, solver, jnp.array(1.0)).value
    return out, float(root)


checks.run()
