"""A child process of opcheck: loads SavedModels and calls them, so that a crash does not end opcheck.

Run as a script, by `children.py` through `fork_server.py`: it imports TensorFlow and the
packages of the plan, like a program that serves a model, and nothing of its own package.

Arguments: the folder, the number of intra-op threads. The folder has plan.pkl (modules to
import; names of jobs, each with its steps) and, in a folder for each job, `model` and the
arrays of steps. The process writes each result to a file at once; `underway` has the
current job and step.
"""

import importlib
import os
import pickle
import sys


def _values(tensors):
    return [None if x is None else x.numpy() for x in tensors]


def _floats(tf, tensors):
    return [y for y in tensors if y.dtype.is_floating or y.dtype.is_complex]


def _gradients(tf, function, arrays, indices, upstream):
    """Returns the gradients to the inputs of these indices."""
    tensors = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch([tensors[i] for i in indices])
        outputs = function(*tensors)
    floats = _floats(tf, outputs)
    if not floats or not indices:
        return [None] * len(indices)
    gradients = tape.gradient(floats, [tensors[i] for i in indices], output_gradients=upstream)
    return [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def _mirrored(tf, function, replicas, indices, upstream):
    """Returns each replica's outputs, and the gradients to a variable for each input that multiplies it."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        factors = [tf.Variable(tf.ones([], replicas[0][i].dtype)) for i in indices]

    def step(*tensors):
        tensors = list(tensors)
        with tf.GradientTape() as tape:
            for i, factor in zip(indices, factors, strict=True):
                tensors[i] = tensors[i] * factor
            outputs = function(*tensors)
            floats = _floats(tf, outputs)
        gradients = tape.gradient(floats, factors, output_gradients=upstream) if floats and factors else []
        context = tf.distribute.get_replica_context()
        # TensorFlow cannot reduce complex numbers over devices: they are added below.
        gradients = [g if g is None or g.dtype.is_complex else context.all_reduce("SUM", g) / 2 for g in gradients]
        return list(outputs), gradients

    values = [
        strategy.experimental_distribute_values_from_function(
            lambda context, i=i: tf.constant(replicas[context.replica_id_in_sync_group][i])
        )
        for i in range(len(replicas[0]))
    ]
    outputs, gradients = tf.function(lambda: strategy.run(step, values))()
    local = [strategy.experimental_local_results(y) for y in outputs]
    summed = [None if g is None else tf.add_n(strategy.experimental_local_results(g)) for g in gradients]
    return [_values([y[r] for y in local]) for r in range(2)], _values(summed)


def _run(tf, model, step, given):
    if step == "forward":
        return _values(model.forward(*map(tf.constant, given["arrays"])))
    if step == "gradient":
        return _values(_gradients(tf, model.forward, given["arrays"], given["indices"], given["upstream"]))
    if step == "saved_gradient":
        tensors = map(tf.constant, [*given["arrays"], *given["upstream"]])
        return _values(model.gradient(*tensors))
    if step == "mirrored":
        return _mirrored(tf, model.forward, given["replicas"], given["indices"], given["upstream"])
    if step == "large":
        tensors = [tf.constant(a) for a in given["arrays"]]
        outputs = _values(model.forward(*tensors))
        return outputs, _values(_gradients(tf, model.forward, given["arrays"], given["indices"], None))
    # All others are cases that may crash: opcheck checks that they do not, and no values.
    tensors = [tf.constant(a) for a in given["arrays"]]
    outputs = _values(model.loose(*tensors))
    # With known sizes the graph's optimizers may choose other kernels.
    fixed = tf.function(
        model.loose, input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in tensors], autograph=False
    )
    _values(fixed(*tensors))
    if given["indices"]:
        _gradients(tf, model.loose, given["arrays"], given["indices"], None)
    return outputs


def _write(path, value):
    with open(path + ".part", "wb") as file:
        pickle.dump(value, file)
    os.replace(path + ".part", path)


def main():
    folder, threads = sys.argv[1], int(sys.argv[2])
    with open(os.path.join(folder, "plan.pkl"), "rb") as file:
        plan = pickle.load(file)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    for module in plan["imports"]:
        importlib.import_module(module)
    for job, steps in plan["jobs"]:
        here = os.path.join(folder, job)
        results = {step: os.path.join(here, f"{step}.{threads}.result") for step in ("load", *steps)}
        # Not the steps that an earlier child has done, before a later step ended it.
        pending = [step for step in steps if not os.path.exists(results[step])]
        model = error = None
        for step in ("load", *pending) if pending else ():
            path = results[step]
            with open(os.path.join(folder, "underway"), "w", encoding="utf-8") as file:
                file.write(f"{job}\n{step}")
            try:
                if step == "load":
                    model = tf.saved_model.load(os.path.join(here, "model"))
                    result = None
                elif error is not None:
                    raise error
                else:
                    with open(os.path.join(here, f"{step}.given"), "rb") as file:
                        result = _run(tf, model, step, pickle.load(file))
                _write(path, ("ok", result))
            except Exception as e:
                error = e if step == "load" else error
                _write(path, ("raised", f"{type(e).__name__}: {e}"))
    with open(os.path.join(folder, "underway"), "w", encoding="utf-8") as file:
        file.write("done")


if __name__ == "__main__":
    # Modules beside this script must not shadow others of the same name.
    sys.path.pop(0)
    main()
