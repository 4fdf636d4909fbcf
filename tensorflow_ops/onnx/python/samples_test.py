"""Tests of all samples and their variants in ONNX Runtime."""

import numpy as np
import onnx_testing
import tensorflow as tf
from absl.testing import parameterized
from op_samples_testing import CALLS

import tensorflow_ops as tfo
from tensorflow_ops.testing.python import inputs

# The newest opset of all operators.
_OPSET = 19
# A loop whose number of iterations depends on the number of rows; ONNX's attributes of convolutions.
_NEEDS_STATIC_DIMS = ("nn.linear_cross_entropy", "nn.deform_conv2d", "nn.depthwise_conv2d")
# ONNX Runtime reads beside an empty feature map, and crashes.
_NEEDS_PIXELS = ("detection.roi_align", "detection.multiscale_roi_align")
# An opset; before it, Reshape takes 0 for the size of the input.
_TAKES_SIZES_OF_0 = 14
# Constants outside of the function become inputs of the model.
_HAS_CAPTURES = "seq2seq.ctc_beam_search_decode (language model)"
# ONNX Runtime lacks Atan, Conv and Erf of float64, and rounds products of float16 differently.
_OTHER_DTYPES = dict.fromkeys(("detection.box_iou (ciou)", "nn.depthwise_conv2d", "nn.gelu"), "float64")
_OTHER_DTYPES |= {"nn.linear_cross_entropy (16 bits, no bias)": "float16"}
# Of activation_bits=8, where such a product decides which integer is the nearest.
_OTHER_DTYPES |= {f"nn.quantized_matmul {number}": "float16" for number in (8, 9, 10)}
_NAMES = [name for name in CALLS if not name.startswith(_HAS_CAPTURES) and not isinstance(CALLS[name].onnx, str)]
_OPERATORS = [name for name in _NAMES if CALLS[name].onnx and not name[-1].isdigit()]
_DTYPES = ("float32", "float16", "float32", "float64")


def _without_elements(name):
    """Yields a call's tensors with a size of 0 in place of each size, where the function takes them."""
    call = CALLS[name].inputs
    for dims in inputs.dim_groups(call.tensors):
        tensors = inputs.sliced(call.tensors, dims, 0)
        if name.startswith(_NEEDS_PIXELS) and any(x.shape.rank == 4 and 0 in x.shape for x in tensors):
            continue
        try:
            call.call(*tensors)
        except inputs.REFUSALS:
            continue
        yield tensors


class SamplesTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, name, dtype, opset):
        """Returns the names of the model's operators."""
        call, dynamic = CALLS[name].inputs, not name.startswith(_NEEDS_STATIC_DIMS)
        cases = [call.tensors]
        if dynamic and opset >= _TAKES_SIZES_OF_0:
            cases += [*CALLS[name].edges, *_without_elements(name)]
        first, *edges = [[np.asarray(x) for x in call.cast(tf.as_dtype(dtype), case)] for case in cases]
        return onnx_testing.check(self, call.call, *first, opset=opset, dynamic=dynamic, also=edges, optimize=False)

    @parameterized.parameters(*_NAMES)
    def test_same_in_onnx_runtime(self, name):
        lacking = [dtype for sample, dtype in _OTHER_DTYPES.items() if name.startswith(sample)]
        dtypes = [x for x in _DTYPES if x in CALLS[name].dtypes and x not in lacking]
        dtype = dtypes[CALLS[name].turn % len(dtypes)]
        used = self._check(name, dtype, _OPSET)
        # Operators of some functions are of float32, or not of float64.
        if CALLS[name].onnx and dtype == "float32":
            self.assertIn(CALLS[name].onnx[0], used)

    @parameterized.parameters(*_OPERATORS)
    def test_from_its_first_opset_on(self, name):
        operator, opset = CALLS[name].onnx
        self.assertIn(operator, self._check(name, "float32", opset))
        if opset > 13:
            self.assertNotIn(operator, self._check(name, "float32", opset - 1))

    def test_multiscale_roi_align_takes_the_level_of_a_box_on_the_limit(self):
        maps = [np.full([1, 32 // n, 32 // n, 1], n, np.float32) for n in (1, 2, 4)]
        boxes = np.float32([[0, 0, 56, 56], [0, 0, 55.9, 56], [0, 0, 112, 112], [1, 2, 113, 114], [0, 0, 112, 111.9]])

        def pool(*args):
            return tfo.detection.multiscale_roi_align(args[:3], *args[3:], 1, strides=(4, 8, 16))[:, 0, 0, 0]

        onnx_testing.check(self, pool, *maps, boxes, np.zeros(5, np.int32))

    def test_nms_orders_doubles_that_are_equal_as_floats(self):
        boxes, scores = np.float64([[0, 0, 1, 1], [5, 5, 6, 6]]), np.float64([1, 1 + 1e-12])
        onnx_testing.check(self, lambda *x: tfo.detection.nms(*x, 0.5), boxes, scores)

    @parameterized.parameters(("float32", True), ("float16", True), ("float64", False))
    def test_layer_norm_of_known_channels(self, dtype, is_operator):
        x, gamma, beta = (np.random.default_rng(5).normal(1, 2, size).astype(dtype) for size in ([2, 3, 8], 8, 8))
        for function in (tfo.nn.layer_norm, tfo.nn.rms_norm):
            factors = (gamma, beta) if function is tfo.nn.layer_norm else (gamma,)
            used = onnx_testing.check(self, function, x, *factors, dynamic=False)
            self.assertEqual("LayerNormalization" in used, is_operator and len(factors) == 2)

    def test_output_size_is_an_input(self):
        features = np.arange(30, dtype=np.float32).reshape(1, 5, 6, 1)
        boxes, indices = np.float32([[0, 0, 4, 3], [1, 1, 6, 5]]), np.zeros(2, np.int32)
        for pool in (tfo.detection.roi_align, tfo.detection.roi_pool):
            onnx_testing.check(self, pool, features, boxes, indices, np.int32([2, 3]), optimize=False)


class GraphsTest(tf.test.TestCase):
    def test_in_bodies_of_loops_and_branches(self):
        """Ops of both kinds, twice: ONNX needs different names in all bodies."""

        def function(logits, labels):
            def body(i, total):
                loss = tfo.nn.sparse_softmax_cross_entropy(labels, tfo.nn.softmax(logits) * tf.cast(i, tf.float32))
                return i + 1, total + tf.reduce_sum(loss)

            total = tf.constant(0.0)
            for _ in range(2):
                _, total = tf.while_loop(lambda i, _: i < 4, body, (tf.constant(0), total))
            frames = tf.stack([logits, -logits])
            one, two = tf.ones([2], tf.int32), tf.fill([2], 2)
            ctc = [tfo.nn.ctc_loss(labels[:, tf.newaxis], frames * scale, one, two) for scale in (1.0, 2.0)]
            branch = tf.cond(total > 0, lambda: tfo.nn.softmax_entropy(logits), lambda: logits[:, 0])
            return total, branch, *ctc

        logits = np.random.default_rng(4).normal(size=[2, 5]).astype(np.float32)
        onnx_testing.check(self, function, logits, np.int32([1, 3]))

    def test_empty_tensors_in_an_optimized_graph(self):
        """Else tf2onnx's optimizer writes a constant shape, [0, -1]: the size of the input, and the rest."""

        def function(x):
            shape = tf.shape(x)
            return tfo.zero_out(tf.reshape(x, [shape[0], shape[1] * shape[2]]))

        empty = [[np.ones(shape, np.float32)] for shape in ([0, 3, 4], [2, 0, 4], [2, 3, 0])]
        onnx_testing.check(self, function, np.ones([2, 3, 4], np.float32), also=empty)


if __name__ == "__main__":
    tf.test.main()
