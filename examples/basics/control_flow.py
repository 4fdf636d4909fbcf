"""Control flow in graphs: tf.cond, tf.while_loop, TensorArray, and what AutoGraph writes for you.

python examples/basics/control_flow.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf


def main():
    """Runs the example."""

    # A Python if looks at a value when the function is traced, and a traced tensor has
    # none yet. tf.cond puts both branches into the graph and runs one.
    @tf.function
    def with_cond(x):
        return tf.cond(x > 0, lambda: x * 2, lambda: -x)

    # AutoGraph turns an if over a tensor into that.
    @tf.function
    def with_if(x):
        if x > 0:
            return x * 2
        return -x

    print("cond:", [int(with_cond(tf.constant(v))) for v in (3, -3)])
    print("if:  ", [int(with_if(tf.constant(v))) for v in (3, -3)])

    # tf.where picks between values that were both computed, element by element. So was the
    # gradient: of log at 0 it is infinite, and 0 * infinity is NaN. Make the input of the
    # branch that is not taken harmless.
    x = tf.constant([0.0, 1.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        wrong = tf.where(x > 0, x * tf.math.log(x), 0.0)
        right = tf.where(x > 0, x * tf.math.log(tf.where(x > 0, x, 1.0)), 0.0)
    print(
        "where:", wrong.numpy(), "gradient", tape.gradient(wrong, x).numpy(), "mended", tape.gradient(right, x).numpy()
    )

    # A loop whose length the values decide: Newton's square root. What changes from pass to
    # pass are loop variables; their shapes and dtypes stay.
    @tf.function
    def square_root(a):
        def improve(guess, passes):
            return (guess + a / guess) / 2, passes + 1

        return tf.while_loop(
            lambda guess, passes: (tf.abs(guess * guess - a) > 1e-5 * a) & (passes < 50), improve, (a, 0)
        )

    root, passes = square_root(tf.constant(2.0))
    print(f"while_loop: {root:.4f} after {passes} passes")

    # A shape that changes has to be announced.
    @tf.function
    def powers_of_two(n):
        values = tf.constant([1])
        while tf.shape(values)[0] < n:
            tf.autograph.experimental.set_loop_options(shape_invariants=[(values, tf.TensorShape([None]))])
            values = tf.concat([values, values[-1:] * 2], 0)  # copies everything, each time
        return values

    print("growing tensor:", powers_of_two(6).numpy())

    # A list of results is a TensorArray: each is written once, nothing is copied, and the
    # gradient goes through. A Python list would be filled at tracing, with a loop's symbols.
    @tf.function
    def fibonacci(n):
        numbers = tf.TensorArray(tf.int32, n)
        a, b = 1, 1
        for i in tf.range(n):
            numbers = numbers.write(i, a)  # keep what write returns
            a, b = b, a + b
        return numbers.stack()

    print("TensorArray:", fibonacci(10).numpy())

    # The gradient of a loop runs it backwards.
    a = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(a)
        root, _ = square_root(a)
    print(f"d sqrt(a) / da at 2: {tape.gradient(root, a):.4f}, by hand {0.5 / 2**0.5:.4f}")

    # A loop over Python numbers is unrolled: each pass is in the graph again.
    for name, loop in (("range", range), ("tf.range", tf.range)):

        @tf.function
        def repeat(x, loop=loop):
            for _ in loop(100):
                x = tf.sin(x)
            return x

        operations = repeat.get_concrete_function(tf.constant(1.0)).graph.get_operations()
        print(f"for over {name}:", len(operations), "ops")


if __name__ == "__main__":
    main()
