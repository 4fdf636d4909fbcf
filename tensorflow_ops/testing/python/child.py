"""A process that opcheck starts: loads SavedModels and calls them, where a crash costs nothing.

Run as a script, by `children.py` through `fork_server.py`: it imports TensorFlow and the
packages it is told, as a program that serves a model does, and nothing of the package that
it stands in.

Arguments: the folder, the number of intra-op threads. The folder has plan.pkl (modules to
import; names of jobs, each with its steps) and, in a folder for each job, `model` and
arrays of steps. Each step's result is written to a file as soon as it is there; `underway`
holds what the process is at.
"""

import importlib
import os
import pickle
import sys


def _values(tensors):
    return [None if x is None else x.numpy() for x in tensors]


def _floats(tf, tensors):
    return [y for y in tensors if y.dtype.is_floating or y.dtype.is_complex]


def _gradients(tf, function, arrays, wanted, upstream):
    tensors = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch([tensors[i] for i in wanted])
        outputs = function(*tensors)
    floats = _floats(tf, outputs)
    if not floats or not wanted:
        return [None] * len(wanted)
    gradients = tape.gradient(floats, [tensors[i] for i in wanted], output_gradients=upstream)
    return [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def _mirrored(tf, function, replicas, wanted, upstream):
    """Each replica's outputs, and the gradients to a number that all of them multiply inputs with."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        factors = [tf.Variable(tf.ones([], replicas[0][i].dtype)) for i in wanted]

    def step(*tensors):
        tensors = list(tensors)
        with tf.GradientTape() as tape:
            for i, factor in zip(wanted, factors, strict=True):
                tensors[i] = tensors[i] * factor
            outputs = function(*tensors)
            floats = _floats(tf, outputs)
        gradients = tape.gradient(floats, factors, output_gradients=upstream) if floats and factors else []
        context = tf.distribute.get_replica_context()
        # TensorFlow reduces no complex numbers over devices: their sum is made below.
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
        return _values(_gradients(tf, model.forward, given["arrays"], given["wanted"], given["upstream"]))
    if step == "saved_gradient":
        tensors = map(tf.constant, [*given["arrays"], *given["upstream"]])
        return _values(model.gradient(*tensors))
    if step == "mirrored":
        return _mirrored(tf, model.forward, given["replicas"], given["wanted"], given["upstream"])
    if step == "large":
        tensors = [tf.constant(a) for a in given["arrays"]]
        outputs = _values(model.forward(*tensors))
        return outputs, _values(_gradients(tf, model.forward, given["arrays"], given["wanted"], None))
    # Any other is a case that may crash: what it gives matters less than that it gives something.
    tensors = [tf.constant(a) for a in given["arrays"]]
    outputs = _values(model.loose(*tensors))
    # With sizes that the graph's optimizers see, which may choose other kernels.
    fixed = tf.function(
        model.loose, input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in tensors], autograph=False
    )
    _values(fixed(*tensors))
    if given["wanted"]:
        _gradients(tf, model.loose, given["arrays"], given["wanted"], None)
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
        # What an earlier child, which a later step killed, has done.
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
    # Modules beside this script must not stand for others of their names.
    sys.path.pop(0)
    main()
