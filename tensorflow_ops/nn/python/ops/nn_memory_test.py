"""Tests of how much the nn functions add to a process' peak memory."""

import process_testing
import tensorflow as tf

# Prints the memory that each function's forward pass, and one backward pass, adds to the process' peak, as a fraction
# of the logits' size.
_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    nn, rows, classes = tfo.nn, 4096, 16000
    labels = tf.zeros([rows], tf.int32)
    functions = {
        "sparse": lambda x: nn.sparse_softmax_cross_entropy(labels[: x.shape[0]], x),
        "smooth": lambda x: nn.sparse_softmax_cross_entropy(labels[: x.shape[0]], x, label_smoothing=0.1, z_loss=0.1),
        "label_log_prob": lambda x: nn.label_log_prob(labels[: x.shape[0]], x),
        "entropy": nn.softmax_entropy,
        "dense": lambda x: nn.softmax_cross_entropy(x, x),
        "unit_kl": lambda x: nn.gaussian_kl((x, x)),
    }

    def gradient(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    # Allocates what the first calls allocate once.
    for name, function in functions.items():
        gradient(function, tf.zeros([64, classes]))
    x = tf.zeros([rows, classes])
    logits = 4 * rows * classes
    for name, function in functions.items():
        # The peak only grows, so cheaper functions run first, and all forward passes before the gradient.
        before = max(status("VmHWM"), status("VmRSS"))
        function(x).numpy()
        print(name, (status("VmHWM") - before) / logits)
    before = max(status("VmHWM"), status("VmRSS"))
    d_x = gradient(functions["sparse"], x)
    print("gradient", (status("VmHWM") - before) / logits)
    """

# Prints the same for linear_cross_entropy in MiB. All logits would take 512 MiB, those of a chunk take 32 MiB.
_LINEAR_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    rows, dims, classes = 16384, 8, 8192
    weight = tf.random.normal([dims, classes])

    def gradient(features, labels, weight):
        with tf.GradientTape() as tape:
            tape.watch([features, weight])
            loss = tfo.nn.linear_cross_entropy(features, weight, labels)
        return tape.gradient(loss, [features, weight])

    for call in (gradient, tf.function(gradient)):
        call(tf.ones([300, dims]), tf.zeros([300], tf.int32), weight)
    features, labels = tf.ones([rows, dims]), tf.zeros([rows], tf.int32)
    for name, call in {
        "forward": lambda: tfo.nn.linear_cross_entropy(features, weight, labels),
        "gradient": lambda: gradient(features, labels, weight),
        "graph": lambda: tf.function(gradient)(features, labels, weight),
    }.items():
        before = max(status("VmHWM"), status("VmRSS"))
        call()
        print(name, (status("VmHWM") - before) / 2**20)
    """


# Prints how many caches a loop of updates, compiled by XLA or not, adds to the process' peak.
_LOOP_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo
    from tensorflow_ops.core.python import library

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    def loop(length):
        def step(i, cache):
            rows = tf.cast(i, tf.float32) * tf.ones([4, 1, 16])
            return i + 1, tfo.nn.update_cache(cache, rows, i)

        _, cache = tf.while_loop(lambda i, _: i < 9, step, [0, tf.zeros([4, length, 16])])
        return tf.reduce_sum(cache[:, :9])

    jit_compile = {jit_compile} and library.xla_error is None
    call = tf.function(loop, jit_compile=jit_compile)
    # XLA needs sizes. TensorFlow would make constants of known ones, which the loop must not write to.
    size = int if jit_compile else tf.constant
    call(size(10)).numpy()
    before = max(status("VmHWM"), status("VmRSS"))
    assert call(size(2**20)).numpy() == 4 * 16 * 36
    print("caches", (status("VmHWM") - before) / 2**28)
    """


class MemoryTest(tf.test.TestCase):
    def _printed(self, script):
        lines = process_testing.output(self.get_temp_dir(), script).splitlines()
        return {name: float(number) for name, number in map(str.split, lines)}

    def test_forward_adds_only_per_row_results(self):
        added = self._printed(_MEMORY)
        self.assertLen(added, 7)
        gradient = added.pop("gradient")
        for name, part in added.items():
            self.assertLess(part, 0.05, name)
        # The gradient itself and nothing else.
        self.assertLess(gradient, 1.05)
        self.assertGreater(gradient, 0.9)

    def test_a_loop_holds_one_cache(self):
        for jit_compile in ("False", "True"):
            added = self._printed(_LOOP_MEMORY.replace("{jit_compile}", jit_compile))
            self.assertBetween(added["caches"], 0.9, 1.4)

    def test_linear_cross_entropy_holds_chunks(self):
        added = self._printed(_LINEAR_MEMORY)
        self.assertLess(added["forward"], 1.5 * 32)
        # A chunk's logits and their gradient.
        self.assertLess(added["forward"] + added["gradient"] + added["graph"], 4 * 32)


if __name__ == "__main__":
    tf.test.main()
