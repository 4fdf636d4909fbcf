"""Control flow in graphs: tf.cond, tf.while_loop, TensorArray, and AutoGraph."""

import tensorflow as tf


# A Python if needs a value while the function is traced, and traced tensors have none. tf.cond
# adds both branches to the graph and runs one.
@tf.function
def with_cond(x):
    return tf.cond(x > 0, lambda: x * 2, lambda: -x)


# AutoGraph converts an if over a tensor to tf.cond.
@tf.function
def with_if(x):
    if x > 0:
        return x * 2
    return -x


print("cond:", [int(with_cond(tf.constant(v))) for v in (3, -3)])
print("if:  ", [int(with_if(tf.constant(v))) for v in (3, -3)])

# tf.where selects elements of two values that are both computed, and so are their gradients:
# the gradient of log at 0 is infinite, and 0 * infinity is NaN. Replace the input of the
# branch that is not selected by a harmless value.
x = tf.constant([0.0, 1.0])
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    wrong = tf.where(x > 0, x * tf.math.log(x), 0.0)
    right = tf.where(x > 0, x * tf.math.log(tf.where(x > 0, x, 1.0)), 0.0)
gradient, mended = tape.gradient(wrong, x), tape.gradient(right, x)
print("where:", wrong.numpy(), "gradient", gradient.numpy(), "mended", mended.numpy())


# A loop whose length depends on values: Newton's square root. Values that change between
# passes are loop variables, with fixed shapes and dtypes.
@tf.function
def square_root(a):
    def improve(guess, passes):
        return (guess + a / guess) / 2, passes + 1

    return tf.while_loop(lambda guess, passes: (tf.abs(guess * guess - a) > 1e-5 * a) & (passes < 50), improve, (a, 0))


a = tf.constant(2.0)
with tf.GradientTape() as tape:  # runs backwards over the passes of a loop
    tape.watch(a)
    root, passes = square_root(a)
print(f"while_loop: {root:.4f} after {passes} passes")
print(f"d sqrt(a) / da at 2: {tape.gradient(root, a):.4f}, by hand {0.5 / 2**0.5:.4f}")


# A shape that changes needs a shape invariant. This copies all values in each pass.
@tf.function
def powers_of_two(n):
    values = tf.constant([1])
    while tf.shape(values)[0] < n:
        tf.autograph.experimental.set_loop_options(shape_invariants=[(values, tf.TensorShape([None]))])
        values = tf.concat([values, values[-1:] * 2], 0)
    return values


print("growing tensor:", powers_of_two(6).numpy())


# To collect results, use a TensorArray: each is written once, nothing is copied, and it is
# differentiable. A Python list would be filled during tracing, with symbolic tensors.
@tf.function
def fibonacci(n):
    numbers = tf.TensorArray(tf.int32, n)
    a, b = 1, 1
    for i in tf.range(n):
        numbers = numbers.write(i, a)  # use the array that write returns
        a, b = b, a + b
    return numbers.stack()


print("TensorArray:", fibonacci(10).numpy())


# A loop over Python numbers is unrolled: the graph contains a copy of each pass.
def repeat(x, numbers):
    for _ in numbers(100):
        x = tf.sin(x)
    return x


for name, numbers in (("range", range), ("tf.range", tf.range)):
    graph = tf.function(repeat).get_concrete_function(tf.constant(1.0), numbers).graph
    print(f"for over {name}:", len(graph.get_operations()), "ops")
