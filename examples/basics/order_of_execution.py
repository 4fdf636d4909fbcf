"""Order of execution: Python during tracing, ops in a tf.function, control dependencies."""

import tensorflow as tf

# In eager mode, lines run in order. A tf.function runs its Python code once, while it is
# traced, and afterwards only the graph.
python_calls = []


@tf.function
def traced(x):
    python_calls.append("called")  # a Python side effect: during tracing only
    tf.print("  tf.print runs each time:", x)
    return x + 1


for i in range(3):
    traced(tf.constant(i))
print("Python ran", len(python_calls), "time, the graph 3 times")

# Ops without side effects run as soon as their inputs are ready. Reads and writes of a
# variable keep the order of the lines: tf.function adds the dependencies.
counter = tf.Variable(0)


@tf.function
def in_order():
    counter.assign(1)
    before = counter + 0
    counter.assign_add(10)
    return before, counter + 0


print("in the order of the lines:", [int(v) for v in in_order()])

# A bare tf.Graph, as in old code, has no automatic dependencies. There, and for ops that
# share no variable, add them: ops created in the block run after the check.
for tied in (False, True):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32)
        check = tf.debugging.assert_positive(x)
        with tf.control_dependencies([check] if tied else []):
            result = tf.math.log(x)
        try:
            print("bare graph, not tied: the check does not run,", session.run(result, {x: [1.0, -1.0]}))
        except tf.errors.InvalidArgumentError:
            print("bare graph, tied: the check runs first, and fails")


# The block affects ops that are created in it, not tensors that are used in it: a tensor
# from before keeps its value. tf.identity creates an op that waits.
@tf.function
def waits():
    old = counter.read_value()
    with tf.control_dependencies([counter.assign(100)]):
        return old, tf.identity(counter.read_value())


counter.assign(5)
print("read before, and in the block:", [int(v) for v in waits()])


# Unused results are not computed; side effects (print, assign, assert) always run.
@tf.function
def unused(x):
    tf.math.reciprocal_no_nan(x)  # pruned: unused, without side effects
    tf.debugging.assert_positive(x)  # is kept
    return x


try:
    unused(tf.constant(-1.0))
except tf.errors.InvalidArgumentError as error:
    condition = next(line for line in error.message.splitlines() if "Condition" in line)
    print("an unused assertion still runs:", condition)
