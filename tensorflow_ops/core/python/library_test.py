"""Tests of the shared object, of its import, and of the public API's names and signatures."""

import doctest
import inspect
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types
from unittest import mock

import keras
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from elftools.elf.elffile import ELFFile
from tensorflow.python.framework import kernels

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_INPUTS = "(features, boxes, box_indices, output_size, *, "
_FORMATS = "data_format='NHWC', box_format='xyxy', "
_POOL_OPTIONS = f"spatial_scale=1.0, {_FORMATS}"
_ALIGN_OPTIONS = f"spatial_scale=1.0, sampling_ratio=0, aligned=True, mode='avg', {_FORMATS}"
_PS_POOL_OPTIONS = f"spatial_scale=1.0, channel_order='channel_major', {_FORMATS}"
_PS_ALIGN_OPTIONS = f"spatial_scale=1.0, sampling_ratio=0, channel_order='channel_major', {_FORMATS}"
_MULTISCALE_OPTIONS = (
    f"strides, sampling_ratio=2, aligned=True, canonical_box_size=224.0, canonical_stride=16, {_FORMATS}"
)
_NMS_OPTIONS = "score_threshold=None, max_outputs=None, box_format='xyxy', "
_LABEL_LOSS_OPTIONS = "ignore_index=None, label_smoothing=0.0, z_loss=0.0, "
_REDUCTION = "reduction='sum_over_batch_size', "
_LOSS_OPTIONS = "class_weights=None, softcap=None, return_log_sum_exp=False, "
_SEQUENCES = "labels, logits, label_lengths, logit_lengths"
_SAMPLING_OPTIONS = "seed, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, pad_id=None, min_length=0, "
_SAMPLING_INPUTS = "logits_processor=None, prompt=None, prompt_lengths=None, history=None, "
_CORRELATION_OPTIONS = "kernel_size=1, stride_1=1, stride_2=1, padding=0, data_format='NHWC', "
# The interface of programs and SavedModels: signatures, other public names, ops. Before a release, add the new ones.
_SIGNATURES = {
    "zero_out": "(x, name=None)",
    "zero_out_with_index": "(x, *, preserve_index=0, name=None)",
    "show_versions": "()",
    "detection.roi_pool": f"{_INPUTS}{_POOL_OPTIONS}name=None)",
    "detection.roi_pool_with_argmax": f"{_INPUTS}{_POOL_OPTIONS}name=None)",
    "detection.roi_align": f"{_INPUTS}{_ALIGN_OPTIONS}name=None)",
    "detection.ps_roi_pool": f"{_INPUTS}{_PS_POOL_OPTIONS}name=None)",
    "detection.ps_roi_align": f"{_INPUTS}{_PS_ALIGN_OPTIONS}name=None)",
    "detection.multiscale_roi_align": f"{_INPUTS}{_MULTISCALE_OPTIONS}name=None)",
    "image.connected_components": "(images, *, connectivity=4, name=None)",
    "image.euclidean_distance_transform": "(images, *, spacing=(1.0, 1.0), dtype=tf.float32, name=None)",
    "detection.box_iou": "(boxes1, boxes2, *, mode='iou', box_format='xyxy', name=None)",
    "detection.box_iou_loss": "(boxes1, boxes2, *, mode='giou', box_format='xyxy', name=None)",
    "layers.CRF": (
        "(num_tags, *, use_boundaries=True, transitions_initializer='zeros', transitions_regularizer=None, "
        "transitions_constraint=None, **kwargs)"
    ),
    "losses.CTC": f"(blank_index=0, zero_infinity=False, {_REDUCTION}name='ctc', dtype=None)",
    "losses.RNNT": f"(blank_index=0, {_REDUCTION}name='rnnt', dtype=None)",
    "losses.BoxIoU": f"(mode='giou', box_format='xyxy', {_REDUCTION}name='box_iou', dtype=None)",
    "detection.nms": f"(boxes, scores, iou_threshold, *, {_NMS_OPTIONS}name=None)",
    "detection.batched_nms": f"(boxes, scores, group_ids, iou_threshold, *, {_NMS_OPTIONS}name=None)",
    "detection.multiclass_nms": (
        "(boxes, scores, *, iou_threshold=0.5, score_threshold=0.0, max_outputs=100, max_outputs_per_class=None, "
        "box_format='xyxy', name=None)"
    ),
    "detection.soft_nms": (
        "(boxes, scores, *, method='gaussian', sigma=0.5, iou_threshold=0.3, score_threshold=0.001, max_outputs=None, "
        "box_format='xyxy', name=None)"
    ),
    "layers.RoIPool": f"(output_size, *, {_POOL_OPTIONS}**kwargs)",
    "layers.RoIAlign": f"(output_size, *, {_ALIGN_OPTIONS}**kwargs)",
    "layers.PSRoIPool": f"(output_size, *, {_PS_POOL_OPTIONS}**kwargs)",
    "layers.PSRoIAlign": f"(output_size, *, {_PS_ALIGN_OPTIONS}**kwargs)",
    "layers.MultiScaleRoIAlign": f"(output_size, *, {_MULTISCALE_OPTIONS}**kwargs)",
    "layers.CorrelationCost": f"(max_displacement, *, {_CORRELATION_OPTIONS}**kwargs)",
    "image.correlation_cost": f"(features_a, features_b, *, max_displacement, {_CORRELATION_OPTIONS}name=None)",
    "image.dense_image_warp": "(images, flow, *, name=None)",
    "image.grid_sample": (
        "(features, grid, *, mode='bilinear', padding_mode='zeros', align_corners=False, normalized=True, "
        "data_format='NHWC', name=None)"
    ),
    "losses.SparseSoftmaxCrossEntropy": (
        f"({_LABEL_LOSS_OPTIONS}{_REDUCTION}name='sparse_softmax_cross_entropy', dtype=None, class_weights=None, "
        "softcap=None, axis=-1)"
    ),
    "losses.SoftmaxCrossEntropy": (
        f"(axis=-1, label_smoothing=0.0, {_REDUCTION}name='softmax_cross_entropy', dtype=None, class_weights=None, "
        "softcap=None)"
    ),
    "layers.Merge": (
        "(units, activation=None, *, use_bias=True, kernel_initializer='glorot_uniform', bias_initializer='zeros', "
        "kernel_regularizer=None, bias_regularizer=None, activity_regularizer=None, kernel_constraint=None, "
        "bias_constraint=None, **kwargs)"
    ),
    "nn.deform_conv2d": (
        "(features, offsets, filters, *, mask=None, bias=None, strides=1, padding='VALID', dilations=1, "
        "data_format='NHWC', name=None)"
    ),
    "nn.multiscale_deformable_attention": (
        "(values, spatial_shapes, sampling_locations, attention_weights, *, num_points=None, name=None)"
    ),
    "layers.DeformConv2D": (
        "(filters, kernel_size, strides=1, padding='valid', dilation_rate=1, groups=1, offset_groups=1, "
        "modulated=False, activation=None, use_bias=True, kernel_initializer='glorot_uniform', "
        "bias_initializer='zeros', kernel_regularizer=None, bias_regularizer=None, **kwargs)"
    ),
    "nn.crf_decode": "(logits, transitions, *, lengths=None, name=None)",
    "nn.crf_log_likelihood": "(labels, logits, transitions, *, lengths=None, name=None)",
    "nn.crf_marginals": "(logits, transitions, *, lengths=None, name=None)",
    "nn.ctc_loss": f"({_SEQUENCES}, *, blank_index=0, zero_infinity=False, name=None)",
    "nn.rnnt_loss": f"({_SEQUENCES}, *, blank_index=0, name=None)",
    "nn.softmax": "(logits, *, axis=-1, name=None)",
    "nn.log_prob_from_logits": "(logits, *, axis=-1, name=None)",
    "nn.softmax_cross_entropy": f"(labels, logits, *, axis=-1, label_smoothing=0.0, {_LOSS_OPTIONS}name=None)",
    "nn.sparse_softmax_cross_entropy": f"(labels, logits, *, axis=-1, {_LABEL_LOSS_OPTIONS}{_LOSS_OPTIONS}name=None)",
    "nn.label_log_prob": "(labels, logits, *, name=None)",
    "nn.softmax_entropy": "(logits, *, axis=-1, name=None)",
    "nn.gaussian_kl": "(q, p=None, *, axis=-1, name=None)",
    "nn.linear_cross_entropy": (
        f"(features, weight, labels, *, bias=None, {_LABEL_LOSS_OPTIONS}{_LOSS_OPTIONS}name=None)"
    ),
    "seq2seq.batch_gather": "(params, indices, *, name=None)",
    "seq2seq.beam_search": (
        "(step_fn, initial_state, *, batch_size, beam_width, max_length, bos_id, eos_ids, pad_id=None, min_length=0, "
        "length_penalty=0.0, length_normalization='gnmt', cut_off='end', early_stopping=True, num_return_sequences=1, "
        "num_groups=1, diversity_penalty=0.0, logits_processor=None, process_log_probs=False, prompt=None, "
        "prompt_lengths=None, history=None, name=None)"
    ),
    "seq2seq.beam_search_step": (
        "(logits, log_probs, finished, lengths, *, eos_ids, beam_width=None, length_penalty=0.0, forbidden=None, "
        "name=None)"
    ),
    "seq2seq.ctc_beam_search_decode": (
        "(logits, logit_lengths, *, beam_width=100, top_paths=1, blank_index=0, step_fn=None, initial_state=None, "
        "lm_weight=1.0, label_bonus=0.0, pad_id=-1, name=None)"
    ),
    "seq2seq.ctc_greedy_decode": (
        "(logits, logit_lengths, *, blank_index=0, merge_repeated=True, pad_id=-1, name=None)"
    ),
    "seq2seq.gather_tree": "(token_ids, parent_ids, lengths, *, pad_id, name=None)",
    "seq2seq.sample": (
        f"(step_fn, initial_state, *, batch_size, max_length, bos_id, eos_ids, {_SAMPLING_OPTIONS}"
        f"num_return_sequences=None, {_SAMPLING_INPUTS}name=None)"
    ),
    "seq2seq.stochastic_beam_search": (
        f"(step_fn, initial_state, *, batch_size, beam_width, max_length, bos_id, eos_ids, {_SAMPLING_OPTIONS}"
        f"{_SAMPLING_INPUTS}name=None)"
    ),
    "python_op": (
        "(name, *, out, saved=None, vmap='sequential', non_differentiable=(), check_finite=False, replace=False)"
    ),
    "summary.figure": "(name, draw_fn, args, *, step=None)",
    "summary.labeled_images": (
        "(name, images, labels, *, predictions=None, max_outputs=3, step=None, boxes=None, box_labels=None, "
        "class_names=None)"
    ),
    "shapes.get_shape": "(tensor, *, out_type=tf.int32, name=None)",
    "shapes.reshape": "(tensor, dims, name=None)",
    "distribute.make_parallel": "(fn, *, devices=None)",
    "testing.assert_gradients": (
        "(fn, args, kwargs=None, *, tolerance=None, non_differentiable=(), fixed_dtype=(), numeric_dtype='float64', "
        "full=None, seed=0)"
    ),
    "testing.gradient_error": (
        "(fn, args, kwargs=None, *, non_differentiable=(), fixed_dtype=(), numeric_dtype='float64', full=None, seed=0)"
    ),
    "testing.opcheck": (
        "(fn, args, kwargs=None, *, tests=None, reference=None, "
        "dtypes=('float16', 'bfloat16', 'float32', 'float64'), output_dtype=None, fixed_dtype=(), "
        "non_differentiable=(), second_order=None, forward_mode=None, xla=True, vectorize=True, "
        "unknown_rank=True, data_dependent_shapes=False, empty=True, more_args=(), edge_args=(), bad_args=(), "
        "skip=None, imports=None, tolerance=None, seed=0, raise_on_failure=True)"
    ),
    "testing.opcheck_samples": "(samples, *, tests=None, raise_on_failure=True)",
}
# Public names without a signature: result types, errors, modules.
_OTHER_NAMES = {
    "__version__",
    "detection.Detections",
    "detection.RoIPoolWithArgmax",
    "image.ConnectedComponents",
    "nn.CrfDecode",
    "detection.SoftNms",
    "seq2seq.BeamSearchResult",
    "seq2seq.BeamSearchStep",
    "seq2seq.CtcBeamSearchDecode",
    "seq2seq.CtcDecode",
    "seq2seq.SampleResult",
    "seq2seq.StochasticBeamSearchResult",
    "seq2seq.processors",
    "testing.GradientError",
    "testing.InputGradientError",
    "testing.OpCheckError",
    "testing.OpCheckResult",
    "testing.OpCheckResults",
    "testing.OpSample",
}
_OPS = {
    "TensorflowOps>BatchedNms",
    "TensorflowOps>BeamSearchStep",
    "TensorflowOps>BoxIou",
    "TensorflowOps>BoxIouGrad",
    "TensorflowOps>BoxIouLoss",
    "TensorflowOps>BoxIouLossGrad",
    "TensorflowOps>BuildInfo",
    "TensorflowOps>ConnectedComponents",
    "TensorflowOps>CrfDecode",
    "TensorflowOps>CrfLogLikelihood",
    "TensorflowOps>CrfLogLikelihoodGrad",
    "TensorflowOps>CrfMarginals",
    "TensorflowOps>CtcBeamSearchDecode",
    "TensorflowOps>CtcBeamSearchStep",
    "TensorflowOps>CtcGreedyDecode",
    "TensorflowOps>CtcLoss",
    "TensorflowOps>CtcLossGrad",
    "TensorflowOps>EuclideanDistanceTransform",
    "TensorflowOps>GaussianKl",
    "TensorflowOps>GaussianKlGrad",
    "TensorflowOps>GatherTree",
    "TensorflowOps>MulticlassNms",
    "TensorflowOps>MultiscaleRoiAlign",
    "TensorflowOps>MultiscaleRoiAlignBoxesGrad",
    "TensorflowOps>MultiscaleRoiAlignGrad",
    "TensorflowOps>Nms",
    "TensorflowOps>PsRoiAlign",
    "TensorflowOps>PsRoiAlignBoxesGrad",
    "TensorflowOps>PsRoiAlignGrad",
    "TensorflowOps>PsRoiPool",
    "TensorflowOps>PsRoiPoolGrad",
    "TensorflowOps>RnntLoss",
    "TensorflowOps>RnntLossGrad",
    "TensorflowOps>RoiAlign",
    "TensorflowOps>RoiAlignBoxesGrad",
    "TensorflowOps>RoiAlignGrad",
    "TensorflowOps>RoiAlignMaxBoxesGrad",
    "TensorflowOps>RoiAlignMaxGrad",
    "TensorflowOps>RoiAlignMaxGradGrad",
    "TensorflowOps>RoiPool",
    "TensorflowOps>RoiPoolGrad",
    "TensorflowOps>RoiPoolGradGrad",
    "TensorflowOps>SoftNms",
    "TensorflowOps>Softmax",
    "TensorflowOps>SoftmaxCrossEntropy",
    "TensorflowOps>SoftmaxCrossEntropyGrad",
    "TensorflowOps>SoftmaxEntropy",
    "TensorflowOps>SoftmaxEntropyGrad",
    "TensorflowOps>SoftmaxGrad",
    "TensorflowOps>SparseSoftmaxCrossEntropy",
    "TensorflowOps>SparseSoftmaxCrossEntropyGrad",
    "TensorflowOps>ZeroOut",
    "TensorflowOps>ZeroOutWithIndex",
}


def _public(path):
    result = tfo
    for name in path.split("."):
        result = getattr(result, name)
    return result


def _public_modules():
    return {name: module for name in tfo.__all__ if inspect.ismodule(module := getattr(tfo, name))}


def _public_names():
    """Returns the names in __all__ of the package and of its public modules, such as "nn.softmax"."""
    modules = _public_modules()
    names = [name for name in tfo.__all__ if name not in modules]
    return names + [f"{prefix}.{name}" for prefix, module in modules.items() for name in module.__all__]


def _is_function(path):
    """Returns whether a public name is a function, a layer or a loss."""
    member = _public(path)
    is_keras = isinstance(member, type) and issubclass(member, keras.layers.Layer | keras.losses.Loss)
    return isinstance(member, types.FunctionType) or is_keras


_FUNCTIONS = [path for path in _public_names() if _is_function(path)]

# The package's folders, lowest first. A folder imports only from those below it.
_FLOORS = (
    ("core",),
    ("detection", "distribute", "image", "nn", "prototyping", "shapes", "testing", "zero_out"),
    ("seq2seq", "summary"),
    ("layers", "losses"),
)

_VERSION = tfo.__version__.split("+")[0]
# Mangled names in namespace tfo.
_OURS = re.compile("_Z(N|NK|TIN|TSN|TVN)3tfo")
_KERNELS = os.path.join(os.path.dirname(library.PATH), f"libtensorflow_ops_kernels-{_VERSION}.so")


class SharedObjectTest(parameterized.TestCase, tf.test.TestCase):
    def _symbols(self, path):
        """Returns a shared object's dynamic symbols."""
        with open(path, "rb") as file:
            return list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())[1:]  # the first entry is reserved

    @parameterized.parameters(library.PATH, library.XLA_PATH)
    def test_exports_no_symbols(self, path):
        symbols = self._symbols(path)
        self.assertNotEmpty(symbols)
        self.assertEmpty([symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"])

    def test_exports_only_functions_of_this_project(self):
        names = [symbol.name for symbol in self._symbols(_KERNELS) if symbol["st_shndx"] != "SHN_UNDEF"]
        self.assertNotEmpty(names)
        self.assertEmpty([name for name in names if not _OURS.match(name)])

    @parameterized.parameters(library.PATH, library.XLA_PATH, _KERNELS)
    def test_imports_no_weak_symbol_of_tensorflow(self, path):
        """A weak symbol, such as an Eigen template, would bind to TensorFlow's copy."""
        weak = {symbol.name for symbol in self._symbols(path) if symbol["st_info"]["bind"] == "STB_WEAK"}
        in_every_shared_object = {
            "_ITM_deregisterTMCloneTable",
            "_ITM_registerTMCloneTable",
            "__cxa_finalize",
            "__cxa_pure_virtual",
            "__gmon_start__",
        }
        self.assertEmpty({name for name in weak - in_every_shared_object if not _OURS.match(name)})

    @parameterized.parameters(
        (library.PATH, {"libtensorflow_framework.so.2", f"libtensorflow_ops_kernels-{_VERSION}.so"}),
        (_KERNELS, set()),
        (library.XLA_PATH, {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}),
    )
    def test_depends_only_on_tensorflow_and_system_libraries(self, path, tensorflow):
        with open(path, "rb") as file:
            needed = {tag.needed for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        self.assertContainsSubset(tensorflow, needed)
        system = {
            "ld-linux-x86-64.so.2",
            "libc.so.6",
            "libdl.so.2",
            "libgcc_s.so.1",
            "libm.so.6",
            "libpthread.so.0",
            "librt.so.1",
            "libstdc++.so.6",
        }
        self.assertEmpty(needed - system - tensorflow)

    def test_out_of_memory_for_scratch_is_an_error(self):
        """In the kernel's calling thread and in the thread pool: an uncaught exception would end the process."""
        script = """
            import resource
            import tensorflow as tf
            import tensorflow_ops as tfo

            def pool(boxes, data_format):
                features = tf.ones([1, 2, 2, 2])
                size = (2**20 // boxes, 1)
                return tfo.detection.roi_pool(
                    features, tf.zeros([boxes, 4]), tf.zeros([boxes], tf.int32), size, data_format=data_format
                )

            print(pool(1, "NHWC").shape, pool(4, "NCHW").shape)
            with open("/proc/self/status") as status:
                used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
            kept = [tf.ones([4 << 20]) for _ in range(16)]
            del kept  # TensorFlow's allocator keeps memory for outputs
            resource.setrlimit(resource.RLIMIT_DATA, (used, used))
            for boxes, data_format in (1, "NHWC"), (4, "NCHW"):
                try:
                    print(pool(boxes, data_format).shape)
                except tf.errors.ResourceExhaustedError as error:
                    print(error.message.rpartition("}} ")[2])
            """
        message = "TensorflowOps>RoiPool ran out of memory for working buffers"
        # Memory that a process has freed may suffice for a call, so that it raises no error.
        raised = set()
        for _ in range(12):
            ok, *results = process_testing.output(self.get_temp_dir(), script).splitlines()
            self.assertEqual(ok, "(1, 1048576, 1, 2) (4, 2, 262144, 1)")
            self.assertLen(results, 2)
            for call, result in enumerate(results):
                if not result.startswith("("):
                    self.assertStartsWith(result, message)
                    raised.add(call)
            if raised == {0, 1}:
                return
        self.fail(f"of the two calls, only {raised} ran out of memory")

    def test_unloadable_file_raises_import_error_with_advice(self):
        path = os.path.join(self.get_temp_dir(), "_tensorflow_ops.so")
        with mock.patch.multiple(library, PATH=path, _loaded_from=lambda: None):
            with self.assertRaisesRegex(ImportError, r"could not be loaded: .*No such file.*pip install"):
                library._load()
            with open(path, "w", encoding="utf-8") as file:
                file.write("no shared object")
            with self.assertRaisesRegex(ImportError, r"could not be loaded: .*pip install"):
                library._load()


class ImportTest(tf.test.TestCase):
    def test_leaves_tensorflow_configurable(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf
            from tensorflow.python.client import pywrap_tf_session as session
            from tensorflow.core.framework import op_def_pb2

            def registered():
                ops = op_def_pb2.OpList.FromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
                return {op.name for op in ops.op}

            before = registered()
            import tensorflow_ops as tfo
            print(*sorted(registered() - before))
            # Both raise once the eager context exists.
            tf.config.threading.set_intra_op_parallelism_threads(3)
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
            )
            with tf.device("CPU:1"):
                print(tfo.zero_out([7, 8]).device)
            """,
        )
        names, device = printed.splitlines()
        self.assertContainsSubset(_OPS, names.split())
        for name in names.split():
            self.assertStartsWith(name, "TensorflowOps>")
            devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(name).kernel}
            self.assertIn("CPU", devices, name)
        self.assertEndsWith(device, "CPU:1")

    def test_a_second_import_is_an_import_error(self):
        folder = os.path.dirname(os.path.dirname(os.path.dirname(library.__file__)))
        copy = self._copy()
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import tensorflow_ops

            def import_again():
                for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow_ops"]:
                    del sys.modules[name]
                try:
                    import tensorflow_ops
                except ImportError as error:
                    print(error)

            import_again()
            sys.path.insert(0, sys.argv[1])
            import_again()
            """,
            copy,
        )
        again, second = printed.splitlines()
        self.assertEqual(again, f"tensorflow_ops is already loaded from {folder}; restart Python to load it again")
        other = os.path.join(copy, "tensorflow_ops")
        self.assertEqual(
            second, f"tensorflow_ops is already loaded from {folder}; restart Python to load it from {other}"
        )

    def test_after_load_op_library(self):
        """Of the same file it works; of a copy or a link it is an ImportError."""
        script = """
            import sys
            import tensorflow as tf

            tf.load_op_library(sys.argv[1])
            try:
                import tensorflow_ops as tfo
            except ImportError as error:
                print(error)
            else:
                x = tf.constant([3.0, 4.0])
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = tfo.zero_out(x)
                print(tape.gradient(y, x).numpy())
            """
        copy = os.path.join(self._copy(), "tensorflow_ops", os.path.basename(library.PATH))
        link = os.path.join(os.path.dirname(copy), "link.so")  # beside the library of kernels that it needs
        os.symlink(library.PATH, link)
        same, of_copy, of_link = (
            process_testing.output(self.get_temp_dir(), script, path).strip() for path in (library.PATH, copy, link)
        )
        self.assertEqual(same, "[1. 0.]")
        self.assertStartsWith(of_copy, f"tensorflow_ops is already loaded from {os.path.realpath(copy)}; restart")
        path = os.path.realpath(library.PATH)
        self.assertStartsWith(of_link, f"tensorflow_ops is already loaded from {path}; restart")

    def _copy(self):
        """Copies the package. Returns the folder that contains the copy."""
        copy = tempfile.mkdtemp(dir=self.get_temp_dir())
        package = os.path.dirname(os.path.abspath(tfo.__file__))
        shutil.copytree(package, os.path.join(copy, "tensorflow_ops"), ignore=shutil.ignore_patterns("*_test*"))
        return copy

    def test_saved_model_finds_its_ops(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
            def forward(self, x):
                return tfo.zero_out(x)

        path = os.path.join(self.get_temp_dir(), "model")
        tf.saved_model.save(Model(), path)
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import tensorflow as tf

            try:
                tf.saved_model.load(sys.argv[1])
            except RuntimeError as error:
                print(error)
            import tensorflow_ops
            print(tf.saved_model.load(sys.argv[1]).forward([3, 4]).numpy().tolist())
            """,
            path,
        )
        without, with_ops = printed.splitlines()
        self.assertStartsWith(without, "Op type not registered 'TensorflowOps>ZeroOut'")
        self.assertEqual(with_ops, "[3, 0]")


class PublicApiTest(parameterized.TestCase, tf.test.TestCase):
    def test_has_its_public_names(self):
        self.assertContainsSubset(_OTHER_NAMES | set(_SIGNATURES), set(_public_names()))

    @parameterized.parameters(*_public_modules())
    def test_module_lists_its_imports(self, name):
        """Names that a module imports with `from ... import` are in __all__, and every name there exists."""
        module = getattr(tfo, name)
        imported = {k for k, v in vars(module).items() if not k.startswith("_") and not inspect.ismodule(v)}
        self.assertContainsSubset(imported, module.__all__)
        self.assertContainsSubset(set(module.__all__), vars(module))

    @parameterized.parameters(*_SIGNATURES)
    def test_signature(self, path):
        public = _public(path)
        # For a layer, some Python releases return the signature of Keras's __new__.
        signature = inspect.signature(public.__init__ if isinstance(public, type) else public)
        parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
        plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
        self.assertEqual(str(plain), _SIGNATURES[path])

    def test_new_functions_have_a_name_argument(self):
        for path in set(_FUNCTIONS) - set(_SIGNATURES):
            *_, last = inspect.signature(_public(path)).parameters.values()
            self.assertEqual((last.name, last.default), ("name", None), path)

    @parameterized.parameters(*(path for path in _FUNCTIONS if "." in path))
    def test_is_in_the_folder_of_its_namespace(self, path):
        self.assertStartsWith(_public(path).__module__, f"tensorflow_ops.{path.partition('.')[0]}.")

    def test_folders_import_only_from_lower_floors(self):
        package = pathlib.Path(tfo.__file__).parent
        floor_of = {folder: floor for floor, folders in enumerate(_FLOORS) for folder in folders}
        self.assertEqual({path.parent.name for path in package.glob("*/__init__.py")}, set(floor_of))
        upward = []
        for path in package.glob("*/**/*.py"):
            folder = path.relative_to(package).parts[0]
            for imported in re.findall(r"^\s*(?:from|import) tensorflow_ops\.(\w+)", path.read_text(), re.MULTILINE):
                if imported != folder and floor_of[imported] >= floor_of[folder]:
                    upward.append(f"{path.relative_to(package)} imports {imported}")
        self.assertEmpty(upward)

    def test_zero_out_is_the_op_not_the_package(self):
        self.assertIn("tensorflow_ops.zero_out", sys.modules)
        self.assertTrue(callable(tfo.zero_out))

    @parameterized.parameters(*_FUNCTIONS)
    def test_docstring_examples_run(self, path):
        (test,) = doctest.DocTestFinder(recurse=False).find(_public(path), path, globs={})
        self.assertNotEmpty(test.examples)
        printed = []
        result = doctest.DocTestRunner().run(test, out=printed.append)
        self.assertEqual(result.failed, 0, "".join(printed))


if __name__ == "__main__":
    tf.test.main()
